/* Records, which may lie column by column, to rows of an array. */
#include "native.h"

/* Records that are turned from columns into rows while they are in the cache. */
#define TOGETHER 64

#if defined(__GNUC__)
#define PREFETCH(ADDRESS) __builtin_prefetch(ADDRESS, 1)
#else
#define PREFETCH(ADDRESS) ((void)(ADDRESS))
#endif

#define TURN(TYPE)                                                                                          \
    for (Py_ssize_t i = 0; i < states; i++)                                                                 \
        for (Py_ssize_t k = 0; k < n; k++)                                                                  \
    ((TYPE *)rows)[k * states + i] = *(const TYPE *)(values + k * row + i * column)

FOR_EACH_PROCESSOR(void, turn,
                   (const char *values, Py_ssize_t size, Py_ssize_t row, Py_ssize_t column, char *rows,
                    Py_ssize_t states, Py_ssize_t n),
                   (values, size, row, column, rows, states, n))
{
    if (size == 1)
        TURN(int8_t);
    else if (size == 2)
        TURN(int16_t);
    else if (size == 4)
        TURN(int32_t);
    else
        TURN(int64_t);
}

/* Write values [n, states] to rows of out [rows, states]: `each` of them from each start on. */
static void write_rows(const Py_buffer *values, const int64_t *start, Py_ssize_t runs, Py_ssize_t each, Py_buffer *out,
                       char *rows)
{
    Py_ssize_t states = values->shape[1], width = states * values->itemsize, run = 0, away = 0;
    for (Py_ssize_t first = 0; first < values->shape[0]; first += TOGETHER) {
        Py_ssize_t n = values->shape[0] - first < TOGETHER ? values->shape[0] - first : TOGETHER;
        /* Rows are far apart, and fetched while values are turned. */
        for (Py_ssize_t r = run; r < runs && r < run + n / each; r++)
            PREFETCH((char *)out->buf + start[r] * width);
        turn((const char *)values->buf + first * values->strides[0], values->itemsize, values->strides[0],
             values->strides[1], rows, states, n);
        for (Py_ssize_t k = 0; k < n;) {
            Py_ssize_t m = each - away < n - k ? each - away : n - k;
            memcpy((char *)out->buf + (start[run] + away) * width, rows + k * width, m * width);
            k += m;
            away += m;
            if (away == each)
                run++, away = 0;
        }
    }
}

PyObject *lay_out(PyObject *self, PyObject *arguments)
{
    PyObject *values, *start, *out;
    if (!PyArg_ParseTuple(arguments, "OOO", &values, &start, &out))
        return NULL;
    Array held[3] = {0};
    char *rows = NULL;
    if (hold(values, &held[0], "values", 2, 0, STRIDED) || hold(start, &held[1], "start", 1, 8, PACKED) ||
        hold(out, &held[2], "out", 2, 0, WRITABLE))
        goto end;
    Py_buffer *y = &held[0].view, *to = &held[2].view;
    const int64_t *from = held[1].view.buf;
    Py_ssize_t runs = held[1].view.shape[0], each = runs ? y->shape[0] / runs : 0;
    int fits = y->itemsize == to->itemsize && y->shape[1] == to->shape[1] &&
               y->shape[0] == runs * each;
    for (Py_ssize_t r = 0; r < runs; r++)
        fits &= from[r] >= 0 && from[r] <= to->shape[0] - each;
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "the arrays do not fit each other");
        goto end;
    }
    rows = malloc(TOGETHER * y->shape[1] * y->itemsize + 1);
    if (rows == NULL) {
        PyErr_NoMemory();
        goto end;
    }
    Py_BEGIN_ALLOW_THREADS
    write_rows(y, from, runs, each, to, rows);
    Py_END_ALLOW_THREADS
end:
    free(rows);
    release(held, 3);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}
