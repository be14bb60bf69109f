/* Stretches of numbers: where equal ones begin, what steps are in them, whether all have one length; and whether bytes
   come again and again. */
#include "native.h"

/* Note the first number of each stretch of `size` numbers, the last of which may be shorter; whether each stretch has
   one number only: whether numbers change nowhere but where one begins. */
#define FIRSTS(TYPE)                                                                                        \
    do {                                                                                                    \
        const TYPE *x = (const TYPE *)values;                                                               \
        TYPE *to = (TYPE *)out;                                                                             \
        Py_ssize_t together = (4096 / size + 1) * size;                                                     \
        for (Py_ssize_t start = 0; start < n; start += together) {                                          \
            Py_ssize_t stop = n - start < together ? n : start + together;                                  \
            int64_t others = 0;                                                                             \
            for (Py_ssize_t k = start + 1; k < stop; k++)                                                   \
                others += x[k] != x[k - 1];                                                                 \
            *to++ = x[start];                                                                               \
            for (Py_ssize_t k = start + size; k < stop; k += size) {                                        \
                others -= x[k] != x[k - 1];                                                                 \
                *to++ = x[k];                                                                               \
            }                                                                                               \
            if (others != 0)                                                                                \
                return 0;                                                                                   \
        }                                                                                                   \
        return 1;                                                                                           \
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

/* Numbers that are compared at once, before it is looked where they differ. */
#define TOGETHER 256

/* Note where each stretch of equal numbers begins; how many there are, or -1 if these are more than `most`. */
#define HEADS(TYPE)                                                                                         \
    do {                                                                                                    \
        const TYPE *x = (const TYPE *)values;                                                               \
        Py_ssize_t found = 0;                                                                               \
        for (Py_ssize_t start = 0; start < n; start += TOGETHER) {                                          \
            Py_ssize_t stop = n - start < TOGETHER ? n : start + TOGETHER, k = start ? start : 1;           \
            TYPE bits = start == 0;                                                                         \
            for (Py_ssize_t i = k; i < stop; i++)                                                           \
                bits |= x[i] ^ x[i - 1];                                                                    \
            if (bits == 0)                                                                                  \
                continue;                                                                                   \
            for (Py_ssize_t i = start; i < stop; i++)                                                       \
                if (i == 0 || x[i] != x[i - 1]) {                                                           \
                    if (found == most)                                                                      \
                        return -1;                                                                          \
                    out[found++] = i;                                                                       \
                }                                                                                           \
        }                                                                                                   \
        return found;                                                                                       \
    } while (0)

FOR_EACH_PROCESSOR(Py_ssize_t, note_heads,
                   (const char *values, Py_ssize_t bytes, Py_ssize_t n, int64_t *out, Py_ssize_t most),
                   (values, bytes, n, out, most))
{
    if (bytes == 8)
        HEADS(int64_t);
    if (bytes == 4)
        HEADS(int32_t);
    if (bytes == 2)
        HEADS(int16_t);
    HEADS(int8_t);
}

PyObject *heads(PyObject *self, PyObject *arguments)
{
    PyObject *values, *out;
    if (!PyArg_ParseTuple(arguments, "OO", &values, &out))
        return NULL;
    Array held[2] = {0};
    Py_ssize_t found = -1;
    if (hold(values, &held[0], "values", 1, 0, PACKED) || hold(out, &held[1], "out", 1, 8, WRITABLE))
        goto end;
    Py_buffer *x = &held[0].view, *to = &held[1].view;
    Py_BEGIN_ALLOW_THREADS
    found = note_heads(x->buf, x->itemsize, x->shape[0], to->buf, to->shape[0]);
    Py_END_ALLOW_THREADS
end:
    release(held, 2);
    return PyErr_Occurred() ? NULL : PyLong_FromSsize_t(found);
}

/* How often a number is less than that before it, and how often equal. */
typedef struct {
    Py_ssize_t back, level;
} Order;

/* Note the least and the largest number of the stretches that begin at `head`. */
FOR_EACH_PROCESSOR(Order, note_bounds,
                   (const int64_t *x, Py_ssize_t n, const int64_t *head, Py_ssize_t count, int64_t *least, int64_t *most),
                   (x, n, head, count, least, most))
{
    Order order = {0, 0};
    for (Py_ssize_t r = 0; r < count; r++) {
        Py_ssize_t stop = r + 1 < count ? head[r + 1] : n;
        int64_t low = x[head[r]], high = low, back = 0, level = 0;
        for (Py_ssize_t k = head[r] + 1; k < stop; k++) {
            low = x[k] < low ? x[k] : low;
            high = x[k] > high ? x[k] : high;
            back += x[k] < x[k - 1];
            level += x[k] == x[k - 1];
        }
        least[r] = low;
        most[r] = high;
        order.back += back;
        order.level += level;
    }
    return order;
}

PyObject *bounds(PyObject *self, PyObject *arguments)
{
    PyObject *values, *head, *least, *most;
    if (!PyArg_ParseTuple(arguments, "OOOO", &values, &head, &least, &most))
        return NULL;
    Array held[4] = {0};
    Order order = {0, 0};
    if (hold(values, &held[0], "values", 1, 8, PACKED) || hold(head, &held[1], "head", 1, 8, PACKED) ||
        hold(least, &held[2], "least", 1, 8, WRITABLE) || hold(most, &held[3], "most", 1, 8, WRITABLE))
        goto end;
    Py_ssize_t n = held[0].view.shape[0], count = held[1].view.shape[0];
    const int64_t *at = held[1].view.buf;
    int fits = held[2].view.shape[0] == count && held[3].view.shape[0] == count;
    for (Py_ssize_t r = 0; r < count; r++)
        fits &= at[r] >= 0 && at[r] < (r + 1 < count ? at[r + 1] : n);
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "the arrays do not fit each other");
        goto end;
    }
    Py_BEGIN_ALLOW_THREADS
    order = note_bounds(held[0].view.buf, n, at, count, held[2].view.buf, held[3].view.buf);
    Py_END_ALLOW_THREADS
end:
    release(held, 4);
    return PyErr_Occurred() ? NULL : Py_BuildValue("nn", order.back, order.level);
}
