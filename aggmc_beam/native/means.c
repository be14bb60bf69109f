/* Means of sums about a centre. */
#include "native.h"

/* Whole numbers are added first, so that only the division is rounded. */
FOR_EACH_PROCESSOR(void, write_means,
                   (const double *sums, const double *number, const double *centre, double *out, Py_ssize_t steps,
                    Py_ssize_t states),
                   (sums, number, centre, out, steps, states))
{
    for (Py_ssize_t t = 0; t < steps; t++)
        for (Py_ssize_t i = 0; i < states; i++) {
            double n = number[t], sum = n * centre[i] + sums[t * states + i];
            out[t * states + i] = sum / (n > 1 ? n : 1);
        }
}

PyObject *means(PyObject *self, PyObject *arguments)
{
    PyObject *given[4];
    if (!PyArg_ParseTuple(arguments, "OOOO", &given[0], &given[1], &given[2], &given[3]))
        return NULL;
    Array held[4] = {0};
    if (hold(given[0], &held[0], "sums", 2, 0, DOUBLES) || hold(given[1], &held[1], "number", 1, 0, DOUBLES) ||
        hold(given[2], &held[2], "centre", 1, 0, DOUBLES) || hold(given[3], &held[3], "out", 2, 0, FLOATS))
        goto end;
    Py_ssize_t steps = held[1].view.shape[0], states = held[2].view.shape[0];
    for (int i = 0; i < 4; i += 3)
        if (held[i].view.shape[0] != steps || held[i].view.shape[1] != states) {
            PyErr_SetString(PyExc_ValueError, "the arrays do not fit each other");
            goto end;
        }
    Py_BEGIN_ALLOW_THREADS
    write_means(held[0].view.buf, held[1].view.buf, held[2].view.buf, held[3].view.buf, steps, states);
    Py_END_ALLOW_THREADS
end:
    release(held, 4);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}
