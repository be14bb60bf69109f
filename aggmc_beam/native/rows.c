/* Whole numbers out of Python's dictionaries. Nothing else passes for one: no bool, no number of a library. */
#include "native.h"
#include <structmember.h>
#if PY_VERSION_HEX < 0x030B0000
#include <longintrepr.h>
#endif

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

/* Rows that are taken one by one. What is not taken is given to `other`. */
typedef struct {
    PyObject_HEAD
    PyObject *other;
    Target target;
    Order order;
    Array out; /* [room, width] */
    Py_ssize_t room, number, misses;
} Rows;

/* A row whose keys are not those expected is looked at anew, but not each: keys of text that was read are never the
   same objects. */
#define SELDOM 64

/* Write an integer; 0 if it is anything else, or too large. Those of one digit, as Python has them, are read at once. */
INLINE int write_integer(PyObject *value, int32_t *to)
{
    int overflow = 0;
    long long number;
    if (!PyLong_CheckExact(value))
        return 0;
#if PY_VERSION_HEX >= 0x030C0000
    if (PyUnstable_Long_IsCompact((PyLongObject *)value))
        number = PyUnstable_Long_CompactValue((PyLongObject *)value);
#else
    if (Py_SIZE(value) == 1)
        number = ((PyLongObject *)value)->ob_digit[0];
#endif
    else
        number = PyLong_AsLongLongAndOverflow(value, &overflow);
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

/* Write a row that has the same keys in the same order; 0 if a value is wrong, -1 if it has other keys. */
static int write_alike(PyObject *row, const Target *target, const Order *order, int32_t *to)
{
    PyObject *key, *value;
    Py_ssize_t at = 0, k = 0;
    if (order->size == 0 || PyDict_GET_SIZE(row) != order->size)
        return -1;
    for (; PyDict_Next(row, &at, &key, &value); k++) {
        if (key != order->keys[k])
            return -1;
        if (order->places[k] >= 0 && !write_value(value, target, order->places[k], to))
            return 0;
    }
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

static void forget(Order *order)
{
    for (Py_ssize_t k = 0; k < order->size; k++)
        Py_DECREF(order->keys[k]);
    PyMem_Free(order->keys);
    PyMem_Free(order->places);
    *order = (Order){NULL, NULL, 0};
}

/* Look at the keys of a row that has all that is wanted; nothing is expected if there is no memory for it. */
static void look_at(PyObject *row, const Target *target, Order *order)
{
    PyObject *key, *value;
    Py_ssize_t at = 0, k = 0, size = PyDict_GET_SIZE(row);
    forget(order);
    order->keys = PyMem_Calloc(size + 1, sizeof *order->keys);
    order->places = PyMem_Calloc(size + 1, sizeof *order->places);
    if (order->keys == NULL || order->places == NULL) {
        forget(order);
        return;
    }
    order->size = size;
    for (; PyDict_Next(row, &at, &key, &value); k++) {
        PyObject *place = PyUnicode_CheckExact(key) ? PyDict_GetItemWithError(target->places, key) : NULL;
        order->keys[k] = Py_NewRef(key);
        order->places[k] = place == NULL ? -1 : PyLong_AsSsize_t(place);
    }
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

static int write_row(Rows *rows, PyObject *row)
{
    int32_t *to = (int32_t *)rows->out.view.buf + rows->number * rows->target.width;
    int done = write_alike(row, &rows->target, &rows->order, to);
    if (done < 0) {
        done = write_any(row, &rows->target, to);
        if (done && rows->misses++ % SELDOM == 0)
            look_at(row, &rows->target, &rows->order);
        /* Where keys cannot be compared, a row cannot be read. */
        PyErr_Clear();
    }
    return done;
}

static PyObject *take(PyObject *self, PyObject *row)
{
    Rows *rows = (Rows *)self;
    if (rows->number < rows->room && PyDict_CheckExact(row) && write_row(rows, row)) {
        rows->number++;
        return PyTuple_New(0);
    }
    if (rows->other != NULL)
        return PyObject_CallOneArg(rows->other, row);
    PyErr_SetString(PyExc_ValueError, "nothing is known of the rows");
    return NULL;
}

static PyObject *write_to(PyObject *self, PyObject *out)
{
    Rows *rows = (Rows *)self;
    Array held = {0};
    if (hold(out, &held, "out", 2, 4, WRITABLE) < 0) {
        release(&held, 1);
        return NULL;
    }
    if (rows->target.places == NULL || held.view.shape[1] != rows->target.width) {
        release(&held, 1);
        PyErr_SetString(PyExc_ValueError, "the array does not fit the rows");
        return NULL;
    }
    release(&rows->out, 1);
    rows->out = held;
    rows->room = held.view.shape[0];
    rows->number = 0;
    Py_RETURN_NONE;
}

static int start(PyObject *self, PyObject *arguments, PyObject *names)
{
    Rows *rows = (Rows *)self;
    PyObject *places, *other;
    Py_ssize_t width;
    int lists;
    static char *known[] = {"places", "lists", "width", "other", NULL};
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "O!pnO", known, &PyDict_Type, &places, &lists, &width, &other))
        return -1;
    Target target = {places, width, lists ? PyDict_GET_SIZE(places) - 1 : width};
    if (rows->target.places != NULL || !is_sound(&target)) {
        PyErr_SetString(PyExc_ValueError, "places must be 0, 1, ... up to the width");
        return -1;
    }
    /* A copy, which nobody changes. */
    target.places = PyDict_Copy(places);
    if (target.places == NULL)
        return -1;
    rows->target = target;
    rows->other = Py_NewRef(other);
    return 0;
}

static int traverse(PyObject *self, visitproc visit, void *arg)
{
    Rows *rows = (Rows *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(rows->other);
    Py_VISIT(rows->target.places);
    for (Py_ssize_t k = 0; k < rows->order.size; k++)
        Py_VISIT(rows->order.keys[k]);
    return 0;
}

static int clear(PyObject *self)
{
    Rows *rows = (Rows *)self;
    rows->room = 0;
    Py_CLEAR(rows->other);
    Py_CLEAR(rows->target.places);
    forget(&rows->order);
    release(&rows->out, 1);
    rows->out.is_held = 0;
    return 0;
}

static void end(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"take", take, METH_O, PyDoc_STR("take($self, element, /)\n--\n\n")},
    {"write_to", write_to, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"number", T_PYSSIZET, offsetof(Rows, number), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, PyType_GenericNew}, {Py_tp_init, start},   {Py_tp_dealloc, end}, {Py_tp_traverse, traverse},
    {Py_tp_clear, clear},           {Py_tp_methods, methods}, {Py_tp_members, members}, {0, NULL},
};

PyType_Spec rows_type = {
    "aggmc_beam.native.compiled.Rows", sizeof(Rows), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots,
};
