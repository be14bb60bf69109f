/* Whether numbers come in stretches of one length, and whether bytes come again and again. */
#include "native.h"

/* Note the first number of each stretch of `size` numbers, the last of which may be shorter; whether each stretch has
   one number only. */
#define FIRSTS(TYPE)                                                                                        \
    do {                                                                                                    \
        const TYPE *x = (const TYPE *)values;                                                               \
        TYPE all = 0, *to = (TYPE *)out;                                                                    \
        for (Py_ssize_t start = 0; start < n; start += size) {                                              \
            Py_ssize_t stop = n - start < size ? n : start + size;                                          \
            TYPE first = x[start], bits = 0;                                                                \
            for (Py_ssize_t k = start; k < stop; k++)                                                       \
                bits |= x[k] ^ first;                                                                       \
            all |= bits;                                                                                    \
            *to++ = first;                                                                                  \
        }                                                                                                   \
        return all == 0;                                                                                    \
    } while (0)

FOR_EACH_PROCESSOR(int, note_firsts,
                   (const char *values, Py_ssize_t bytes, Py_ssize_t n, Py_ssize_t size, char *out),
                   (values, bytes, n, size, out))
{
    if (bytes == 8)
        FIRSTS(int64_t);
    if (bytes == 4)
        FIRSTS(int32_t);
    if (bytes == 2)
        FIRSTS(int16_t);
    FIRSTS(int8_t);
}

PyObject *firsts(PyObject *self, PyObject *arguments)
{
    PyObject *values, *out;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(arguments, "OnO", &values, &size, &out))
        return NULL;
    Array held[2] = {0};
    int are_equal = 0;
    if (hold(values, &held[0], "values", 1, 0, PACKED) || hold(out, &held[1], "out", 1, 0, WRITABLE))
        goto end;
    Py_buffer *x = &held[0].view, *to = &held[1].view;
    if (size < 1 || x->itemsize != to->itemsize || to->shape[0] != x->shape[0] / size + (x->shape[0] % size > 0)) {
        PyErr_SetString(PyExc_ValueError, "the arrays do not fit each other");
        goto end;
    }
    Py_BEGIN_ALLOW_THREADS
    are_equal = note_firsts(x->buf, x->itemsize, x->shape[0], size, to->buf);
    Py_END_ALLOW_THREADS
end:
    release(held, 2);
    return PyErr_Occurred() ? NULL : PyBool_FromLong(are_equal);
}

PyObject *repeats(PyObject *self, PyObject *arguments)
{
    Py_buffer bytes;
    Py_ssize_t period;
    if (!PyArg_ParseTuple(arguments, "y*n", &bytes, &period))
        return NULL;
    int are_equal = 1;
    const char *x = bytes.buf;
    if (period < 1)
        PyErr_SetString(PyExc_ValueError, "there must be something to be repeated");
    Py_BEGIN_ALLOW_THREADS
    if (period >= 1 && period < bytes.len)
        are_equal = memcmp(x, x + period, bytes.len - period) == 0;
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&bytes);
    return PyErr_Occurred() ? NULL : PyBool_FromLong(are_equal);
}
