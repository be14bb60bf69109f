/* Sums by step of records without a neighbour: where none is missing they are those of whole steps, and not summed here. */
#include "native.h"

/* Where the neighbours are, and how many kinds there are. */
static const Py_ssize_t DISTANCE[] = {1, -1, 2, -2};
#define KINDS 4

typedef struct {
    const Py_buffer *values; /* [records, states] of 1, 2 or 4 bytes */
    const Py_buffer *record; /* that of each place, or -1 */
    const int64_t *place, *first, *centre;
    Py_ssize_t realizations, steps;
    double *sums;   /* [KINDS, steps, states] */
    double *number; /* [1 + KINDS, steps], of all records at first */
} Line;

INLINE int64_t record(const Line *line, Py_ssize_t p)
{
    return integer(line->record->buf, line->record->itemsize, p);
}

INLINE int32_t value(const Py_buffer *values, int64_t row, Py_ssize_t i)
{
    const char *at = (const char *)values->buf + row * values->strides[0] + i * values->strides[1];
    if (values->itemsize == 1)
        return *(const int8_t *)at;
    return values->itemsize == 2 ? *(const int16_t *)at : *(const int32_t *)at;
}

static void add_lone(const Line *line)
{
    Py_ssize_t S = line->values->shape[1], T = line->steps, end = line->place[line->realizations];
    memset(line->sums, 0, KINDS * T * S * sizeof *line->sums);
    memset(line->number, 0, (1 + KINDS) * T * sizeof *line->number);
    for (Py_ssize_t r = 0; r < line->realizations; r++)
        for (Py_ssize_t p = line->place[r]; p < line->place[r + 1] - APART; p++) {
            int64_t here = record(line, p);
            Py_ssize_t t = line->first[r] + p - line->place[r];
            if (here < 0)
                continue;
            line->number[t]++;
            for (Py_ssize_t k = 0; k < KINDS; k++) {
                Py_ssize_t other = p + DISTANCE[k];
                if (other >= 0 && other < end && record(line, other) >= 0)
                    continue;
                line->number[(k + 1) * T + t]++;
                for (Py_ssize_t i = 0; i < S; i++)
                    line->sums[(k * T + t) * S + i] += (double)value(line->values, here, i) - (double)line->centre[i];
            }
        }
}

/* Whether nothing of a line leads out of its arrays. */
static int is_sound(const Line *line)
{
    if (line->place[0] != 0 || line->record->shape[0] != line->place[line->realizations])
        return 0;
    for (Py_ssize_t r = 0; r < line->realizations; r++) {
        int64_t n = line->place[r + 1] - line->place[r] - APART;
        if (n < 0 || line->first[r] < 0 || line->first[r] > line->steps - n)
            return 0;
    }
    int is_there = 1;
    for (Py_ssize_t p = 0; p < line->record->shape[0]; p++)
        is_there &= record(line, p) < line->values->shape[0];
    return is_there;
}

PyObject *sum_lone(PyObject *self, PyObject *arguments)
{
    PyObject *given[7];
    if (!PyArg_ParseTuple(arguments, "OOOOOOO", &given[0], &given[1], &given[2], &given[3], &given[4], &given[5],
                          &given[6]))
        return NULL;
    Array held[7] = {0};
    if (hold(given[0], &held[0], "values", 2, 0, STRIDED) || hold(given[1], &held[1], "record", 1, 0, PACKED) ||
        hold(given[2], &held[2], "place", 1, 8, PACKED) || hold(given[3], &held[3], "first", 1, 8, PACKED) ||
        hold(given[4], &held[4], "centre", 1, 8, PACKED) || hold(given[5], &held[5], "sums", 3, 0, FLOATS) ||
        hold(given[6], &held[6], "number", 2, 0, FLOATS))
        goto end;
    Py_buffer *values = &held[0].view, *at = &held[1].view, *sums = &held[5].view, *number = &held[6].view;
    Line line = {
        values, at, held[2].view.buf, held[3].view.buf, held[4].view.buf,
        held[3].view.shape[0], sums->shape[1], sums->buf, number->buf,
    };
    int fits = values->itemsize <= 4 && (at->itemsize == 4 || at->itemsize == 8) &&
               held[2].view.shape[0] == line.realizations + 1 && held[4].view.shape[0] == values->shape[1] &&
               sums->shape[0] == KINDS && sums->shape[2] == values->shape[1] && number->shape[0] == 1 + KINDS &&
               number->shape[1] == line.steps;
    if (!fits || !is_sound(&line)) {
        PyErr_SetString(PyExc_ValueError, "the arrays do not fit each other");
        goto end;
    }
    Py_BEGIN_ALLOW_THREADS
    add_lone(&line);
    Py_END_ALLOW_THREADS
end:
    release(held, 7);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}
