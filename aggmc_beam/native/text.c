/* Lines of text that differ in nothing but whole numbers, each written with no character more than it needs. */
#include "native.h"

/* More digits might not fit into 64 bits. */
#define DIGITS 18

/* What comes before a number, and where the numbers of all lines go; nowhere if it is any text that is left out. */
typedef struct {
    const char *before;
    Py_ssize_t length;
    char *to;
    Py_ssize_t apart, size;
} Field;

/* Where the text ends that should be here, or NULL if there is another. */
INLINE const char *after(const char *at, const char *end, const Field *field)
{
    if (end - at < field->length)
        return NULL;
    if (field->length == 1)
        return *at == *field->before ? at + 1 : NULL;
    return memcmp(at, field->before, field->length) == 0 ? at + field->length : NULL;
}

/* Where the number here ends, or NULL if there is none. The text ends with a line's end, so some character follows. */
INLINE const char *number(const char *at, int64_t *found)
{
    int is_below = *at == '-';
    at += is_below;
    const char *first = at;
    int64_t value = 0;
    for (; at - first <= DIGITS && *at >= '0' && *at <= '9'; at++)
        value = 10 * value + (*at - '0');
    Py_ssize_t digits = at - first;
    if (digits == 0 || digits > DIGITS || (*first == '0' && (digits > 1 || is_below)))
        return NULL;
    *found = is_below ? -value : value;
    return at;
}

/* Write a number where it belongs; 0 if it does not fit. */
INLINE int keep(int64_t value, const Field *field, Py_ssize_t row)
{
    char *to = field->to + row * field->apart;
    if (field->size == 8)
        *(int64_t *)to = value;
    else
        *(int32_t *)to = (int32_t)value;
    return field->size == 8 || value == (int32_t)value;
}

/* Where a text that is left out ends: before the next separator. NULL if it is quoted, or none follows. */
INLINE const char *rest(const char *at, const char *end, char separator)
{
    for (; at < end && *at != separator; at++)
        if (*at == '"' || *at == '\n' || *at == '\r')
            return NULL;
    return at < end ? at : NULL;
}

/* Read all lines, as many as `rows`; whether they are as they should be. The last of the fields ends a line. */
FOR_EACH_PROCESSOR(int, parse,
                   (const char *at, const char *end, const Field *fields, Py_ssize_t count, Py_ssize_t rows),
                   (at, end, fields, count, rows))
{
    for (Py_ssize_t row = 0; row < rows; row++) {
        for (Py_ssize_t f = 0; f < count; f++) {
            const Field *field = &fields[f];
            int64_t value;
            at = after(at, end, field);
            if (at == NULL || at == end)
                return at != NULL && f == count - 1 && row == rows - 1;
            if (f == count - 1)
                break;
            at = field->to == NULL ? rest(at, end, *fields[f + 1].before) : number(at, &value);
            if (at == NULL || (field->to != NULL && !keep(value, field, row)))
                return 0;
        }
    }
    return 0;
}

/* Fill in the fields from what Python gives; the number of lines, or -1 with an exception. */
static Py_ssize_t take_fields(PyObject *around, PyObject *out, Field *fields, Array *held)
{
    Py_ssize_t count = PyList_GET_SIZE(around), rows = -1;
    for (Py_ssize_t f = 0; f < count; f++) {
        char *before;
        if (PyBytes_AsStringAndSize(PyList_GET_ITEM(around, f), &before, &fields[f].length) < 0)
            return -1;
        fields[f].before = before;
        if (f == count - 1 || PyList_GET_ITEM(out, f) == Py_None)
            continue;
        if (hold(PyList_GET_ITEM(out, f), &held[f], "out", 1, 0, COLUMN) < 0)
            return -1;
        fields[f].to = held[f].view.buf;
        fields[f].apart = held[f].view.strides[0];
        fields[f].size = held[f].view.itemsize;
        if (fields[f].size < 4 || (rows >= 0 && rows != held[f].view.shape[0])) {
            PyErr_SetString(PyExc_ValueError, "the arrays do not fit each other");
            return -1;
        }
        rows = held[f].view.shape[0];
    }
    for (Py_ssize_t f = 1; f < count; f++)
        if (fields[f].length == 0)
            rows = -1;
    if (rows < 0 && !PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "there must be a number, and text between any two fields");
    return rows;
}

PyObject *parse_lines(PyObject *self, PyObject *arguments)
{
    Py_buffer text;
    PyObject *around, *out;
    if (!PyArg_ParseTuple(arguments, "y*O!O!", &text, &PyList_Type, &around, &PyList_Type, &out))
        return NULL;
    Py_ssize_t count = PyList_GET_SIZE(around), rows;
    int fits = 0;
    Field *fields = PyMem_Calloc(count + 1, sizeof *fields);
    Array *held = PyMem_Calloc(count + 1, sizeof *held);
    if (fields == NULL || held == NULL) {
        PyErr_NoMemory();
        goto end;
    }
    if (PyList_GET_SIZE(out) != count - 1) {
        PyErr_SetString(PyExc_ValueError, "there must be a text more than fields");
        goto end;
    }
    rows = take_fields(around, out, fields, held);
    if (rows < 0)
        goto end;
    const char *start = text.buf, *stop = start + text.len;
    if (text.len == 0 || stop[-1] != '\n') {
        PyErr_SetString(PyExc_ValueError, "the text must end with the end of a line");
        goto end;
    }
    Py_BEGIN_ALLOW_THREADS
    fits = parse(start, stop, fields, count, rows);
    Py_END_ALLOW_THREADS
end:
    if (held != NULL)
        release(held, count);
    PyMem_Free(held);
    PyMem_Free(fields);
    PyBuffer_Release(&text);
    return PyErr_Occurred() ? NULL : PyBool_FromLong(fits);
}

FOR_EACH_PROCESSOR(Py_ssize_t, count_ends, (const char *text, Py_ssize_t length), (text, length))
{
    Py_ssize_t found = 0;
    for (Py_ssize_t start = 0; start < length; start += 128) {
        uint8_t few = 0;
        Py_ssize_t stop = length - start < 128 ? length : start + 128;
        for (Py_ssize_t i = start; i < stop; i++)
            few += text[i] == '\n';
        found += few;
    }
    return found;
}

PyObject *count_lines(PyObject *self, PyObject *argument)
{
    Py_buffer text;
    if (PyObject_GetBuffer(argument, &text, PyBUF_SIMPLE) < 0)
        return NULL;
    Py_ssize_t found;
    Py_BEGIN_ALLOW_THREADS
    found = count_ends(text.buf, text.len);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&text);
    return PyLong_FromSsize_t(found);
}
