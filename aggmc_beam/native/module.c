/* The module aggmc_beam.native.compiled. What its functions do is told in compiled.pyi. */
#include "native.h"

int hold(PyObject *object, Array *array, const char *name, int dimensions, int size, int kind)
{
    int flags = PyBUF_FORMAT | (kind == STRIDED || kind == COLUMN ? PyBUF_STRIDES : PyBUF_C_CONTIGUOUS);
    if (PyObject_GetBuffer(object, &array->view, kind >= COLUMN ? flags | PyBUF_WRITABLE : flags) < 0)
        return -1;
    array->is_held = 1;
    const char *format = array->view.format, *allowed = kind == FLOATS || kind == DOUBLES ? "d" : "bhilq";
    int is_right = format != NULL && strlen(format) == 1 && strchr(allowed, format[0]) != NULL;
    if (is_right && array->view.ndim == dimensions && (size == 0 || array->view.itemsize == size))
        return 0;
    PyErr_Format(PyExc_TypeError, "%s must be an array of another type or number of dimensions", name);
    return -1;
}

void release(Array *arrays, int number)
{
    for (int i = 0; i < number; i++)
        if (arrays[i].is_held)
            PyBuffer_Release(&arrays[i].view);
}

static PyMethodDef methods[] = {
    {"sum_lines", sum_lines, METH_VARARGS, NULL},
    {"sum_lone", sum_lone, METH_VARARGS, NULL},
    {"narrow", narrow, METH_VARARGS, NULL},
    {"lay_out", lay_out, METH_VARARGS, NULL},
    {"parse_lines", parse_lines, METH_VARARGS, NULL},
    {"count_lines", count_lines, METH_O, NULL},
    {"firsts", firsts, METH_VARARGS, NULL},
    {"heads", heads, METH_VARARGS, NULL},
    {"bounds", bounds, METH_VARARGS, NULL},
    {"repeats", repeats, METH_VARARGS, NULL},
    {"means", means, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "aggmc_beam.native.compiled", "Inner loops in C.", 0, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit_compiled(void)
{
    PyObject *module = PyModule_Create(&definition), *rows = PyType_FromSpec(&rows_type);
    if (module == NULL || rows == NULL || PyModule_AddObject(module, "Rows", rows) < 0) {
        Py_XDECREF(rows);
        Py_CLEAR(module);
    }
    return module;
}
