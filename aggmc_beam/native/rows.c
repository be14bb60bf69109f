/* Whole numbers out of Python's dictionaries. Nothing else passes for one: no bool, no number of a library. */
#include "native.h"

/* Where what a row has under some names is to be written: one number each, or a list of so many, which comes last. */
typedef struct {
    PyObject *places;
    Py_ssize_t width, lists; /* the place of the list, or as many as the width */
} Target;

/* The items of a row: their very keys, and the places of what is under them, -1 if it is not wanted. Rows of one source
   mostly share the keys of the first, so that they need not be searched. */
typedef struct {
    PyObject **keys;
    Py_ssize_t *places, size;
} Order;

/* Write an integer; 0 if it is anything else, or too large. */
static int write_integer(PyObject *value, int32_t *to)
{
    int overflow = 0;
    if (!PyLong_CheckExact(value))
        return 0;
    long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    *to = (int32_t)number;
    return overflow == 0 && number == *to;
}

static int write_list(PyObject *value, int32_t *to, Py_ssize_t size)
{
    if (!(PyList_CheckExact(value) || PyTuple_CheckExact(value)) || PySequence_Fast_GET_SIZE(value) != size)
        return 0;
    PyObject **items = PySequence_Fast_ITEMS(value);
    for (Py_ssize_t i = 0; i < size; i++)
        if (!write_integer(items[i], to + i))
            return 0;
    return 1;
}

static int write_value(PyObject *value, const Target *target, Py_ssize_t place, int32_t *row)
{
    if (place == target->lists)
        return write_list(value, row + place, target->width - place);
    return write_integer(value, row + place);
}

/* Write a row that has the same keys in the same order; 0 if it has not, or anything else is wrong. */
static int write_alike(PyObject *row, const Target *target, const Order *order, int32_t *to)
{
    PyObject *key, *value;
    Py_ssize_t at = 0, k = 0;
    if (PyDict_GET_SIZE(row) != order->size)
        return 0;
    for (; PyDict_Next(row, &at, &key, &value); k++)
        if (key != order->keys[k] || (order->places[k] >= 0 && !write_value(value, target, order->places[k], to)))
            return 0;
    return 1;
}

/* Write any row; 0 if something is missing or wrong. */
static int write_any(PyObject *row, const Target *target, int32_t *to)
{
    PyObject *name, *place;
    Py_ssize_t at = 0;
    while (PyDict_Next(target->places, &at, &name, &place)) {
        PyObject *value = PyDict_GetItemWithError(row, name);
        if (value == NULL || !write_value(value, target, PyLong_AsSsize_t(place), to))
            return 0;
    }
    return 1;
}

/* Look at the keys of a row; 0 if that cannot be done, or not all that is wanted is there. */
static int look_at(PyObject *row, const Target *target, Order *order)
{
    PyObject *key, *value;
    Py_ssize_t at = 0, k = 0, found = 0;
    order->size = PyDict_GET_SIZE(row);
    order->keys = PyMem_Calloc(order->size + 1, sizeof *order->keys);
    order->places = PyMem_Calloc(order->size + 1, sizeof *order->places);
    if (order->keys == NULL || order->places == NULL)
        return 0;
    for (; PyDict_Next(row, &at, &key, &value); k++) {
        PyObject *place = PyUnicode_CheckExact(key) ? PyDict_GetItemWithError(target->places, key) : NULL;
        order->keys[k] = key;
        order->places[k] = place == NULL ? -1 : PyLong_AsSsize_t(place);
        found += place != NULL;
    }
    return found == PyDict_GET_SIZE(target->places);
}

/* Whether the places are 0, 1, ... up to the width, or up to the list. */
static int is_sound(const Target *target)
{
    PyObject *name, *place;
    Py_ssize_t at = 0, count = PyDict_GET_SIZE(target->places), k = 0;
    for (; PyDict_Next(target->places, &at, &name, &place); k++)
        if (!PyUnicode_CheckExact(name) || !PyLong_CheckExact(place) || PyLong_AsSsize_t(place) != k)
            return 0;
    return target->lists < target->width ? target->lists == count - 1 : target->width == count;
}

PyObject *take_rows(PyObject *self, PyObject *arguments)
{
    PyObject *rows, *places, *out;
    int lists, are_whole = 1;
    if (!PyArg_ParseTuple(arguments, "O!O!pO", &PyList_Type, &rows, &PyDict_Type, &places, &lists, &out))
        return NULL;
    Array held[1] = {0};
    Order order = {NULL, NULL, -1};
    if (hold(out, &held[0], "out", 2, 4, WRITABLE))
        goto end;
    Py_ssize_t n = PyList_GET_SIZE(rows), width = held[0].view.shape[1];
    Target target = {places, width, lists ? PyDict_GET_SIZE(places) - 1 : width};
    if (held[0].view.shape[0] != n || !is_sound(&target)) {
        PyErr_SetString(PyExc_ValueError, "the arrays do not fit each other");
        goto end;
    }
    /* No code of Python's is run here, so that nothing changes meanwhile. */
    int are_alike = n > 0 && PyDict_CheckExact(PyList_GET_ITEM(rows, 0)) &&
                    look_at(PyList_GET_ITEM(rows, 0), &target, &order);
    for (Py_ssize_t k = 0; are_whole && k < n; k++) {
        PyObject *row = PyList_GET_ITEM(rows, k);
        int32_t *to = (int32_t *)held[0].view.buf + k * width;
        are_whole = PyDict_CheckExact(row) &&
                    ((are_alike && write_alike(row, &target, &order, to)) || write_any(row, &target, to));
    }
end:
    PyMem_Free(order.keys);
    PyMem_Free(order.places);
    release(held, 1);
    return PyErr_Occurred() ? NULL : PyBool_FromLong(are_whole);
}
