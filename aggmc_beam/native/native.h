/* What the files of this folder share. */
#ifndef AGGMC_NATIVE_H
#define AGGMC_NATIVE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Functions that become part of others. */
#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline))
#else
#define INLINE static inline
#endif

/* The head of a function that is compiled for several kinds of processors, with all that is INLINE in it. Which is taken
   is asked at each call. The widest kind multiplies and adds numbers of 16 bits in one step; 512 bits at once would be
   slower, as most loads would then lie across two lines of the cache. */
#if defined(__x86_64__) && defined(__GNUC__)
#define WIDEST "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,prefer-vector-width=256"
#define HAS(FEATURE) __builtin_cpu_supports(FEATURE)
#define FOR_EACH_PROCESSOR(TYPE, NAME, PARAMETERS, ARGUMENTS)                                               \
    INLINE TYPE NAME##_body PARAMETERS;                                                                     \
    __attribute__((target(WIDEST))) static TYPE NAME##_widest PARAMETERS { return NAME##_body ARGUMENTS; }  \
    __attribute__((target("avx2"))) static TYPE NAME##_avx2 PARAMETERS { return NAME##_body ARGUMENTS; }    \
    static TYPE NAME##_any PARAMETERS { return NAME##_body ARGUMENTS; }                                     \
    static TYPE NAME PARAMETERS                                                                             \
    {                                                                                                       \
        if (HAS("avx512vnni") && HAS("avx512bw") && HAS("avx512dq") && HAS("avx512vl"))                     \
            return NAME##_widest ARGUMENTS;                                                                 \
        return HAS("avx2") ? NAME##_avx2 ARGUMENTS : NAME##_any ARGUMENTS;                                  \
    }                                                                                                       \
    INLINE TYPE NAME##_body PARAMETERS
#else
#define FOR_EACH_PROCESSOR(TYPE, NAME, PARAMETERS, ARGUMENTS) static TYPE NAME PARAMETERS
#endif

/* Empty places after each realization of a line, which is also the farthest lag. */
#define APART 2

/* One of several integers of 4 or 8 bytes. */
INLINE int64_t integer(const void *all, Py_ssize_t size, Py_ssize_t i)
{
    return size == 4 ? ((const int32_t *)all)[i] : ((const int64_t *)all)[i];
}

/* An array of Python's, while it is in use. */
typedef struct {
    Py_buffer view;
    int is_held;
} Array;

/* What an array must be: of integers with a sign, in any order or packed row by row, or of doubles, packed; the same, and
   writable. */
enum { STRIDED, PACKED, DOUBLES, COLUMN, WRITABLE, FLOATS };

/* Hold an array, each of whose numbers has so many bytes (0 for any), and return 0; or set an exception. */
int hold(PyObject *object, Array *array, const char *name, int dimensions, int size, int kind);
void release(Array *arrays, int number);

PyObject *sum_lines(PyObject *self, PyObject *arguments);
PyObject *sum_lone(PyObject *self, PyObject *arguments);
PyObject *narrow(PyObject *self, PyObject *arguments);
PyObject *lay_out(PyObject *self, PyObject *arguments);
PyObject *parse_lines(PyObject *self, PyObject *arguments);
PyObject *count_lines(PyObject *self, PyObject *argument);
PyObject *firsts(PyObject *self, PyObject *arguments);
PyObject *heads(PyObject *self, PyObject *arguments);
PyObject *bounds(PyObject *self, PyObject *arguments);
PyObject *repeats(PyObject *self, PyObject *arguments);
PyObject *means(PyObject *self, PyObject *arguments);
extern PyType_Spec rows_type;

#endif
