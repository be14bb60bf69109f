/* What the files of this folder share. */
#ifndef AGGMC_NATIVE_H
#define AGGMC_NATIVE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Functions that are compiled for several kinds of processors. Which is taken shows when the module is loaded. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__)
#define FOR_EACH_PROCESSOR __attribute__((target_clones("arch=skylake-avx512", "avx2", "default")))
#else
#define FOR_EACH_PROCESSOR
#endif

/* Functions that become part of those, and so are compiled for several kinds too. */
#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline))
#else
#define INLINE static inline
#endif

/* An array of Python's, while it is in use. */
typedef struct {
    Py_buffer view;
    int is_held;
} Array;

/* What an array must be: of integers with a sign, in any order or packed row by row; the same, and writable; or of
   doubles, packed and writable. */
enum { STRIDED, PACKED, COLUMN, WRITABLE, FLOATS };

/* Hold an array, each of whose numbers has so many bytes (0 for any), and return 0; or set an exception. */
int hold(PyObject *object, Array *array, const char *name, int dimensions, int size, int kind);
void release(Array *arrays, int number);

PyObject *sum_line(PyObject *self, PyObject *arguments);
PyObject *narrow(PyObject *self, PyObject *arguments);
PyObject *lay_out(PyObject *self, PyObject *arguments);
PyObject *parse_lines(PyObject *self, PyObject *arguments);
PyObject *count_lines(PyObject *self, PyObject *argument);
PyObject *firsts(PyObject *self, PyObject *arguments);
PyObject *repeats(PyObject *self, PyObject *arguments);
PyObject *take_rows(PyObject *self, PyObject *arguments);

#endif
