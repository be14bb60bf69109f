/* Sums of lines: records less a centre, multiplied with each other at lags 0 to 2, and added up by step.

A line is taken some places at a time, in 16 bits and state by state, so that it stays in a core's cache.
Products are added in 32 bits, as many as cannot overflow, and then as floats, in which whole numbers are exact up to
2^53. No sum of products is beyond the larger sum of squares, so the diagonal tells whether all of them are. */
#include "native.h"

/* States that are multiplied with each other at once: as many as there are registers for. */
#define ROWS 4
#define COLUMNS 3
/* States with which all are multiplied while they are in the cache; a multiple of COLUMNS. */
#define PANEL 48
/* Places are multiplied so many at a time, with zeros after the last: a rest would be multiplied one by one. */
#define TURN 16
/* Values that are held at once, and the least and most places, a multiple of TURN. */
#define HELD (1 << 17)
#define FEWEST 1024
#define MOST 4096
/* Of larger values, less the centre, too few products can be added in 32 bits. */
#define LARGEST 4095
/* So many realizations can be added up in 32 bits. */
#define CROWD (1 << 19)
/* Less a centre beyond, values might not fit into 32 bits. */
#define FAR (1 << 30)
/* Realizations that are long enough to be copied one by one. */
#define LONG 32

typedef struct {
    const char *values; /* [records, states] of 1, 2 or 4 bytes */
    Py_ssize_t size, records, states, row, column;
    const void *record; /* that of each place, or only the first of each realization */
    Py_ssize_t record_size;
    int each;
    const int64_t *place, *first, *centre;
    Py_ssize_t realizations, steps, lags;
    double *products; /* [lags, states, states] */
    double *by_step;  /* [steps, states], or NULL */
} Line;

/* Some places of a line, and the sums so far. */
typedef struct {
    int64_t *at;      /* the record of each place, -1 where there is none */
    int32_t *by_step; /* [states, steps] */
    int16_t *z;       /* [states, width]: values less the centre, zeros where there is no record */
    Py_ssize_t width;
    Py_ssize_t start;   /* the first place */
    Py_ssize_t current; /* its realization */
} Block;

INLINE Py_ssize_t least(Py_ssize_t a, Py_ssize_t b) { return a < b ? a : b; }
INLINE Py_ssize_t most(Py_ssize_t a, Py_ssize_t b) { return a > b ? a : b; }
INLINE Py_ssize_t turns(Py_ssize_t n) { return n / TURN * TURN; }

/* How many records a realization may have. */
INLINE Py_ssize_t length(const Line *line, Py_ssize_t r) { return line->place[r + 1] - line->place[r] - APART; }

INLINE int64_t record(const Line *line, Py_ssize_t i)
{
    return integer(line->record, line->record_size, i);
}

/* The places a ... b - 1 of a realization that are among the next n; none if b <= a. */
typedef struct {
    Py_ssize_t a, b;
} Span;

INLINE Span span_of(const Line *line, const Block *block, Py_ssize_t r, Py_ssize_t n)
{
    Py_ssize_t end = line->place[r] + length(line, r);
    return (Span){most(line->place[r], block->start), least(end, block->start + n)};
}

/* Each realization r that has some of the next n places. */
#define FOR_REALIZATIONS(LINE, BLOCK, N)                                                                    \
    for (Py_ssize_t r = (BLOCK)->current; r < (LINE)->realizations && (LINE)->place[r] < (BLOCK)->start + (N); r++)

/* Less the centre. `bits` are all that any of the differences has, but for signs. */
INLINE int16_t less(int32_t value, int32_t centre, int32_t *bits)
{
    int32_t d = (int32_t)((uint32_t)value - (uint32_t)centre);
    *bits |= d ^ (d >> 31);
    return (int16_t)d;
}

/* Do the same with values of any size. */
#define BY_SIZE(SIZE, DO)                                                                                   \
    if (SIZE == 1) {                                                                                        \
        DO(int8_t);                                                                                         \
    } else if (SIZE == 2) {                                                                                 \
        DO(int16_t);                                                                                        \
    } else {                                                                                                \
        DO(int32_t);                                                                                        \
    }

/* The values of a state of records that follow each other. */
#define COPY(TYPE)                                                                                          \
    if (apart == sizeof(TYPE))                                                                              \
        for (Py_ssize_t k = 0; k < n; k++)                                                                  \
            z[k] = less(((const TYPE *)values)[k], centre, &bits);                                          \
    else                                                                                                    \
        for (Py_ssize_t k = 0; k < n; k++)                                                                  \
            z[k] = less(*(const TYPE *)(values + k * apart), centre, &bits)

INLINE int32_t copied(const char *values, Py_ssize_t size, Py_ssize_t apart, int32_t centre, int16_t *z, Py_ssize_t n)
{
    int32_t bits = 0;
    BY_SIZE(size, COPY)
    return bits;
}

/* The same of few records whose values lie side by side, in whole turns: what is read beyond them is not theirs, and
   what is written beyond is to be written again. */
#define COPY_IN_TURNS(TYPE)                                                                                 \
    for (Py_ssize_t k = 0; k < n; k += TURN)                                                                \
        for (Py_ssize_t j = k; j < k + TURN; j++) {                                                         \
            int32_t other = 0;                                                                              \
            z[j] = less(((const TYPE *)values)[j], centre, &other);                                         \
            bits |= j < n ? other : 0;                                                                      \
        }

INLINE int32_t copied_in_turns(const char *values, Py_ssize_t size, int32_t centre, int16_t *z, Py_ssize_t n)
{
    int32_t bits = 0;
    BY_SIZE(size, COPY_IN_TURNS)
    return bits;
}

/* Those of records here and there. */
#define PICK(TYPE)                                                                                          \
    for (Py_ssize_t k = 0; k < n; k++)                                                                      \
    z[k] = at[k] < 0 ? 0 : less(*(const TYPE *)(values + at[k] * apart), centre, &bits)

INLINE int32_t picked(const char *values, Py_ssize_t size, Py_ssize_t apart, const int64_t *at, int32_t centre,
                      int16_t *z, Py_ssize_t n)
{
    int32_t bits = 0;
    BY_SIZE(size, PICK)
    return bits;
}

/* Note the record of each of the next n places; 0 if one is not there. */
INLINE int look_up(const Line *line, Block *block, Py_ssize_t n)
{
    for (Py_ssize_t k = 0; k < n; k++)
        block->at[k] = line->each ? record(line, block->start + k) : -1;
    if (!line->each)
        FOR_REALIZATIONS(line, block, n)
        {
            Span span = span_of(line, block, r, n);
            for (Py_ssize_t p = span.a; p < span.b; p++)
                block->at[p - block->start] = record(line, r) + p - line->place[r];
        }
    int is_there = 1;
    for (Py_ssize_t k = 0; k < n; k++)
        is_there &= block->at[k] < line->records;
    return is_there;
}

/* Write the next n places. The bits of all values, or -1 if a record is not there. */
INLINE int32_t fill(const Line *line, Block *block, Py_ssize_t n)
{
    int32_t bits = 0;
    int is_long = length(line, block->current) >= LONG, are_columns = line->row == line->size;
    int in_stretches = !line->each && (is_long || are_columns);
    if (!in_stretches && !look_up(line, block, n))
        return -1;
    for (Py_ssize_t i = 0; i < line->states; i++) {
        int16_t *z = block->z + i * block->width;
        const char *values = line->values + i * line->column;
        int32_t centre = (int32_t)line->centre[i];
        if (!in_stretches) {
            bits |= picked(values, line->size, line->row, block->at, centre, z, n);
            continue;
        }
        FOR_REALIZATIONS(line, block, n)
        {
            Span span = span_of(line, block, r, n);
            Py_ssize_t first = record(line, r) + span.a - line->place[r], m = span.b - span.a;
            const char *from = values + first * line->row;
            int16_t *to = z + span.a - block->start;
            if (is_long || !are_columns || first + turns(m + TURN - 1) > line->records)
                bits |= copied(from, line->size, line->row, centre, to, m);
            else
                bits |= copied_in_turns(from, line->size, centre, to, m);
            Py_ssize_t end = line->place[r] + length(line, r) - block->start;
            for (Py_ssize_t k = most(end, 0); k < least(end + APART, n); k++)
                z[k] = 0;
        }
    }
    return bits;
}

/* Sums of the products of ROWS states with COLUMNS others over n places, or as many more as make whole turns. */
INLINE void multiply(const int16_t *x, const int16_t *y, Py_ssize_t width, Py_ssize_t n, int32_t *found)
{
    const int16_t *x0 = x, *x1 = x0 + width, *x2 = x1 + width, *x3 = x2 + width;
    const int16_t *y0 = y, *y1 = y0 + width, *y2 = y1 + width;
    int32_t s00 = 0, s01 = 0, s02 = 0, s10 = 0, s11 = 0, s12 = 0;
    int32_t s20 = 0, s21 = 0, s22 = 0, s30 = 0, s31 = 0, s32 = 0;
    Py_ssize_t end = turns(n + TURN - 1);
    for (Py_ssize_t k = 0; k < end; k++) {
        s00 += (int32_t)x0[k] * y0[k], s01 += (int32_t)x0[k] * y1[k], s02 += (int32_t)x0[k] * y2[k];
        s10 += (int32_t)x1[k] * y0[k], s11 += (int32_t)x1[k] * y1[k], s12 += (int32_t)x1[k] * y2[k];
        s20 += (int32_t)x2[k] * y0[k], s21 += (int32_t)x2[k] * y1[k], s22 += (int32_t)x2[k] * y2[k];
        s30 += (int32_t)x3[k] * y0[k], s31 += (int32_t)x3[k] * y1[k], s32 += (int32_t)x3[k] * y2[k];
    }
    int32_t all[] = {s00, s01, s02, s10, s11, s12, s20, s21, s22, s30, s31, s32};
    memcpy(found, all, sizeof all);
}

/* Add the products of n places from k on, at one lag. At lag 0, those above the diagonal are enough. The first ones
   are written: where there are many states, to clear memory beforehand would take as long. */
INLINE void add_products(const Line *line, const Block *block, Py_ssize_t lag, Py_ssize_t k, Py_ssize_t n)
{
    Py_ssize_t S = line->states;
    double *products = line->products + lag * S * S;
    int is_first = block->start + k == 0;
    const int16_t *z = block->z + k;
    int32_t found[ROWS * COLUMNS];
    for (Py_ssize_t panel = 0; panel < S; panel += PANEL)
        for (Py_ssize_t i = 0; i < S; i += ROWS) {
            Py_ssize_t from = lag ? panel : most(panel, i / COLUMNS * COLUMNS);
            for (Py_ssize_t j = from; j < least(S, panel + PANEL); j += COLUMNS) {
                multiply(z + i * block->width, z + j * block->width + lag, block->width, n, found);
                for (Py_ssize_t x = i; x < least(S, i + ROWS); x++)
                    for (Py_ssize_t y = j; y < least(S, j + COLUMNS); y++)
                        products[x * S + y] = found[(x - i) * COLUMNS + y - j] + (is_first ? 0 : products[x * S + y]);
            }
        }
}

/* Add the values of n places to the sums of their steps. */
INLINE void add_steps(const Line *line, const Block *block, Py_ssize_t n)
{
    FOR_REALIZATIONS(line, block, n)
    {
        Span span = span_of(line, block, r, n);
        for (Py_ssize_t i = 0; i < line->states; i++) {
            int32_t *sums = block->by_step + i * line->steps + line->first[r] + span.a - line->place[r];
            const int16_t *z = block->z + i * block->width + span.a - block->start;
            for (Py_ssize_t k = 0; k < span.b - span.a; k++)
                sums[k] += z[k];
        }
    }
}

/* 1 if all was added, 0 if a value is too large, -1 if a record is not there. */
FOR_EACH_PROCESSOR(int, add_line, (const Line *line, Block *block, Py_ssize_t places), (line, block, places))
{
    Py_ssize_t end = line->place[line->realizations];
    for (; block->start < end; block->start += places) {
        while (line->place[block->current + 1] <= block->start)
            block->current++;
        Py_ssize_t n = least(places, end - block->start), ahead = least(n + APART, end - block->start);
        int32_t bits = fill(line, block, ahead);
        if (bits < 0 || bits > LARGEST)
            return bits < 0 ? -1 : 0;
        for (Py_ssize_t i = 0; i < line->states && ahead < n + APART; i++)
            memset(block->z + i * block->width + ahead, 0, (turns(n + TURN - 1) + APART - ahead) * sizeof *block->z);
        Py_ssize_t safe = turns(INT32_MAX / ((bits + 1) * (bits + 1)));
        for (Py_ssize_t k = 0; k < n; k += safe)
            for (Py_ssize_t lag = 0; lag < line->lags; lag++)
                add_products(line, block, lag, k, least(safe, n - k));
        if (line->by_step != NULL)
            add_steps(line, block, n);
    }
    return 1;
}

/* Hand on what was found. At lag 0 only what is above the diagonal is there. */
static void hand_on(const Line *line, const Block *block)
{
    Py_ssize_t S = line->states;
    for (Py_ssize_t from = 0; from < S; from += PANEL)
        for (Py_ssize_t i = from; i < S; i++)
            for (Py_ssize_t j = from; j < least(i, from + PANEL); j++)
                line->products[i * S + j] = line->products[j * S + i];
    for (Py_ssize_t t = 0; t < line->steps; t++)
        for (Py_ssize_t i = 0; i < S; i++)
            line->by_step[t * S + i] = block->by_step[i * line->steps + t];
}

/* Whether nothing of a line leads out of its arrays. */
static int is_sound(const Line *line)
{
    if (line->place[0] != 0)
        return 0;
    for (Py_ssize_t r = 0; r < line->realizations; r++) {
        Py_ssize_t n = length(line, r);
        if (n < 0 || line->first[r] < 0 || (line->by_step != NULL && line->first[r] > line->steps - n))
            return 0;
        if (!line->each && (record(line, r) < 0 || record(line, r) > line->records - n))
            return 0;
    }
    return 1;
}

static int is_near(const int64_t *centre, Py_ssize_t n)
{
    for (Py_ssize_t i = 0; i < n; i++)
        if (centre[i] < -FAR || centre[i] > FAR)
            return 0;
    return 1;
}

/* As `add_line`, in memory that has room for lines like it. */
static int add_in_blocks(const Line *line, Block *block, Py_ssize_t places)
{
    Py_ssize_t S = line->states;
    block->start = block->current = 0;
    memset(block->by_step, 0, S * line->steps * sizeof *block->by_step);
    int done = add_line(line, block, places);
    if (done == 1)
        hand_on(line, block);
    return done;
}

/* Several lines that have the realizations up to each of the `cuts`, with their own centres, products and sums by step;
   -2 if there is no memory for it. */
static int add_lines(const Line *all, const int64_t *cuts, Py_ssize_t lines)
{
    Py_ssize_t S = all->states, places = turns(least(MOST, most(FEWEST, HELD / S)));
    /* States must not lie a power of two apart, or they would share few lines of the cache. */
    Block block = {.width = places + 32};
    block.at = malloc(block.width * sizeof *block.at);
    block.by_step = malloc((S * all->steps + 1) * sizeof *block.by_step);
    block.z = calloc((S + ROWS) * block.width, sizeof *block.z);
    int64_t *place = malloc((all->realizations + 1) * sizeof *place);
    int done = block.at != NULL && block.by_step != NULL && block.z != NULL && place != NULL ? 1 : -2;
    for (Py_ssize_t i = 0; i < lines && done == 1; i++) {
        Line line = *all;
        Py_ssize_t a = cuts[i];
        line.realizations = cuts[i + 1] - a;
        /* Places count from the first of the line. */
        for (Py_ssize_t r = 0; r <= line.realizations; r++)
            place[r] = all->place[a + r] - all->place[a];
        line.place = place, line.first += a, line.centre += i * S, line.products += i * all->lags * S * S;
        line.record = (const char *)all->record + (all->each ? all->place[a] : a) * all->record_size;
        if (all->by_step != NULL)
            line.by_step += i * all->steps * S;
        done = add_in_blocks(&line, &block, places);
    }
    free(block.at);
    free(block.by_step);
    free(block.z);
    free(place);
    return done;
}

/* Whether lines have realizations, not too many, and all of them. */
static int are_cuts(const int64_t *cuts, Py_ssize_t lines, Py_ssize_t realizations)
{
    int fit = cuts[0] == 0 && cuts[lines] == realizations;
    for (Py_ssize_t i = 0; i < lines && fit; i++)
        fit = cuts[i] < cuts[i + 1] && cuts[i + 1] - cuts[i] <= CROWD;
    return fit;
}

PyObject *sum_lines(PyObject *self, PyObject *arguments)
{
    PyObject *values, *record, *place, *first, *cuts, *centre, *products, *by_step;
    int each, done = 0;
    if (!PyArg_ParseTuple(arguments, "OOpOOOOOO", &values, &record, &each, &place, &first, &cuts, &centre, &products,
                          &by_step))
        return NULL;
    Array held[8] = {0};
    if (hold(values, &held[0], "values", 2, 0, STRIDED) || hold(record, &held[1], "record", 1, 0, PACKED) ||
        hold(place, &held[2], "place", 1, 8, PACKED) || hold(first, &held[3], "first", 1, 8, PACKED) ||
        hold(cuts, &held[4], "cuts", 1, 8, PACKED) || hold(centre, &held[5], "centre", 2, 8, PACKED) ||
        hold(products, &held[6], "products", 4, 0, FLOATS) ||
        (by_step != Py_None && hold(by_step, &held[7], "by_step", 3, 0, FLOATS)))
        goto end;
    Py_buffer *y = &held[0].view, *c = &held[5].view, *p = &held[6].view, *s = &held[7].view;
    Line all = {
        y->buf, y->itemsize, y->shape[0], y->shape[1], y->strides[0], y->strides[1],
        held[1].view.buf, held[1].view.itemsize, each,
        held[2].view.buf, held[3].view.buf, c->buf,
        held[3].view.shape[0], by_step == Py_None ? 0 : s->shape[1], p->shape[1],
        p->buf, by_step == Py_None ? NULL : s->buf,
    };
    Py_ssize_t S = all.states, R = all.realizations, lines = held[4].view.shape[0] - 1;
    int fits = (all.size == 1 || all.size == 2 || all.size == 4) && (all.record_size == 4 || all.record_size == 8) && S > 0 && R > 0 &&
               held[2].view.shape[0] == R + 1 && lines > 0 && are_cuts(held[4].view.buf, lines, R) &&
               c->shape[0] == lines && c->shape[1] == S && p->shape[0] == lines && p->shape[1] >= 1 &&
               p->shape[1] <= APART + 1 && p->shape[2] == S && p->shape[3] == S &&
               (by_step == Py_None || (s->shape[0] == lines && s->shape[2] == S));
    fits = fits && is_sound(&all) && held[1].view.shape[0] == (each ? all.place[R] : R);
    done = -1;
    if (fits && !is_near(all.centre, lines * S))
        done = 0;
    else if (fits) {
        Py_BEGIN_ALLOW_THREADS
        done = add_lines(&all, held[4].view.buf, lines);
        Py_END_ALLOW_THREADS
    }
    if (done == -1)
        PyErr_SetString(PyExc_ValueError, "the arrays do not fit each other");
    if (done == -2)
        PyErr_NoMemory();
end:
    release(held, 8);
    return PyErr_Occurred() ? NULL : PyBool_FromLong(done);
}
