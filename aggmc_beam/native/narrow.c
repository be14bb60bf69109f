/* Whole numbers in fewer bytes, if they fit. */
#include "native.h"

/* Numbers that are looked at together: none too large is followed by many more. */
#define TOGETHER 4096

/* Write n numbers; 0 if one does not fit. Those fit that have no bits left above, once moved to positive ones. */
#define WRITE(FROM, TO)                                                                                     \
    do {                                                                                                    \
        const uint64_t half = (uint64_t)1 << (8 * sizeof(TO) - 1);                                          \
        uint64_t bits = 0;                                                                                  \
        for (Py_ssize_t k = 0; k < n; k++) {                                                                \
            bits |= (uint64_t)(int64_t)((const FROM *)from)[k] + half;                                      \
            ((TO *)to)[k] = (TO)((const FROM *)from)[k];                                                    \
        }                                                                                                   \
        return bits < 2 * half;                                                                             \
    } while (0)

FOR_EACH_PROCESSOR(int, write_narrow,
                   (const char *from, Py_ssize_t from_size, char *to, Py_ssize_t to_size, Py_ssize_t n),
                   (from, from_size, to, to_size, n))
{
    if (from_size == 8 && to_size == 2)
        WRITE(int64_t, int16_t);
    if (from_size == 8)
        WRITE(int64_t, int32_t);
    if (from_size == 4 && to_size == 2)
        WRITE(int32_t, int16_t);
    if (from_size == 4)
        WRITE(int32_t, int32_t);
    if (from_size == 2 && to_size == 2)
        WRITE(int16_t, int16_t);
    if (from_size == 2)
        WRITE(int16_t, int32_t);
    if (to_size == 2)
        WRITE(int8_t, int16_t);
    WRITE(int8_t, int32_t);
}

PyObject *narrow(PyObject *self, PyObject *arguments)
{
    PyObject *from, *to;
    if (!PyArg_ParseTuple(arguments, "OO", &from, &to))
        return NULL;
    Array held[2] = {0};
    int fits = 1;
    if (hold(from, &held[0], "values", 1, 0, PACKED) || hold(to, &held[1], "out", 1, 0, WRITABLE))
        goto end;
    Py_buffer *x = &held[0].view, *y = &held[1].view;
    if (x->shape[0] != y->shape[0] || (y->itemsize != 2 && y->itemsize != 4)) {
        PyErr_SetString(PyExc_ValueError, "the arrays do not fit each other");
        goto end;
    }
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t k = 0; fits && k < x->shape[0]; k += TOGETHER) {
        Py_ssize_t n = x->shape[0] - k < TOGETHER ? x->shape[0] - k : TOGETHER;
        fits = write_narrow((const char *)x->buf + k * x->itemsize, x->itemsize, (char *)y->buf + k * y->itemsize,
                            y->itemsize, n);
    }
    Py_END_ALLOW_THREADS
end:
    release(held, 2);
    return PyErr_Occurred() ? NULL : PyBool_FromLong(fits);
}
