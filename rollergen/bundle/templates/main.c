/* Self-test of the kernel saved in this directory: plain OpenCL and libc, see README.md.
 *
 *     ./selftest [--any-device] [--device TEXT] [DIRECTORY]
 *
 * DIRECTORY (default: the current one) holds the source.  Exit codes: 0 passed, 1 wrong results, 2 cannot run here.
 * A program of your own does what `main` does: choose_device, open_session, write inputs, launch, read outputs. */
#define _GNU_SOURCE
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum role { INPUT, TEMPORARY, OUTPUT };
enum dtype {
    FLOAT16, BFLOAT16, FLOAT8_E4M3FN, FLOAT8_E5M2, FLOAT32, FLOAT64,
    INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64, BOOL
};

struct buffer {
    const char *name;
    enum role role;
    enum dtype dtype;
    size_t elements;
    int updated;      /* an output that a call takes, and writes part of */
    double low, high; /* of an integer argument; low > high: of no other */
};

/* `blocks` groups of `threads`; `arguments` number the buffers.  `once`: packs constant inputs. */
struct launch {
    const char *entry;
    size_t blocks, threads;
    int once, argument_count;
    const int *arguments;
};

/* An element of an output: right if it is no further than `allowed` from `want`. */
struct point {
    size_t offset;
    double want, allowed;
};

struct expectation {
    int buffer;
    size_t count;
    const struct point *points;
};

/* `magnitude` 0: inputs anywhere in [-1, 1); else whole numbers up to it. */
struct test {
    const char *title;
    uint64_t seed, magnitude;
    int count;
    const struct expectation *expectations;
};

#include "kernel_tables.h"
#include "opencl_device.h"

static const size_t ITEM_BYTES[] = {2, 2, 1, 1, 4, 8, 1, 2, 4, 8, 1, 2, 4, 8, 1};
static const int SIGNIFICANT_BITS[] = {11, 8, 4, 3, 24, 53};

struct session {
    cl_device_id device;
    cl_context context;
    cl_command_queue queue;
    cl_kernel kernels[COUNT(LAUNCHES)];
    cl_mem memory[COUNT(BUFFERS)];
};

/* ---- the kernel ---- */

static size_t bytes_of(const struct buffer *buffer) { return buffer->elements * ITEM_BYTES[buffer->dtype]; }

static struct session open_session(cl_device_id device, const char *directory) {
    cl_int status;
    struct session session = {.device = device};
    session.context = cl.clCreateContext(NULL, 1, &device, NULL, NULL, &status);
    check(status, "clCreateContext");
    session.queue = cl.clCreateCommandQueue(session.context, device, CL_QUEUE_PROFILING_ENABLE, &status);
    check(status, "clCreateCommandQueue");
    cl_program program = build_program(session.context, device, directory, SOURCE_FILE);
    for (size_t b = 0; b < COUNT(BUFFERS); b++)
        session.memory[b] = new_memory(session.context, bytes_of(&BUFFERS[b]));
    for (int l = 0; l < (int)COUNT(LAUNCHES); l++)
        session.kernels[l] = new_kernel(program, LAUNCHES[l].entry, LAUNCHES[l].argument_count, LAUNCHES[l].arguments,
                                        session.memory);
    return session;
}

/* ---- the test data ---- */

/* A hash of the element's place (SplitMix64). */
static uint64_t word_at(uint64_t seed, uint64_t position, uint64_t element) {
    uint64_t word = ((seed << 48) + (position << 40) + element) * UINT64_C(0x9E3779B97F4A7C15);
    word = (word ^ (word >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    word = (word ^ (word >> 27)) * UINT64_C(0x94D049BB133111EB);
    return word ^ (word >> 31);
}

static double value_of(uint64_t word, const struct buffer *buffer, uint64_t magnitude) {
    enum dtype dtype = buffer->dtype;
    if (buffer->low <= buffer->high)
        return buffer->low + (double)((word >> 32) % ((uint64_t)(buffer->high - buffer->low) + 1));
    if (dtype == BOOL) return (double)(word >> 63);
    if (magnitude) {
        double whole = (double)((word >> 32) % (2 * magnitude + 1)) - (double)magnitude;
        return dtype >= UINT8 ? fabs(whole) : whole;
    }
    if (dtype >= UINT8) return (double)(word >> 60);
    if (dtype >= INT8) return (double)(word >> 60) - 8;
    int bits = SIGNIFICANT_BITS[dtype];
    return (double)(word >> (64 - bits)) / (double)(UINT64_C(1) << (bits - 1)) - 1;
}

/* The bits of a float with so many bits of exponent and fraction: exact for the test values, which are 0 or normal
   numbers of few bits. */
static uint16_t narrow_bits(float value, int exponent, int fraction) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t sign = bits >> 31 << (exponent + fraction), size = (bits & 0x7FFFFFFF) >> (23 - fraction);
    uint32_t rebased = (127u - ((1u << (exponent - 1)) - 1)) << fraction;
    return (uint16_t)(sign | (size ? size - rebased : 0));
}

/* finite: without infinities, whose one NaN has all bits set. */
static double narrow_value(uint16_t bits, int exponent, int fraction, int finite) {
    int most = (1 << exponent) - 1, bias = most / 2, full = (1 << fraction) - 1;
    int power = bits >> fraction & most, part = bits & full;
    double size = ldexp(power ? part + full + 1 : part, (power ? power : 1) - bias - fraction);
    if (power == most && !finite) size = part ? NAN : INFINITY;
    if (power == most && finite && part == full) size = NAN;
    return bits >> (exponent + fraction) ? -size : size;
}

static void store(void *array, size_t at, enum dtype dtype, double value) {
    float single = (float)value;
    uint32_t bits;
    memcpy(&bits, &single, sizeof bits);
    switch (dtype) {
        case FLOAT16: ((uint16_t *)array)[at] = narrow_bits(single, 5, 10); break;
        case FLOAT8_E4M3FN: ((uint8_t *)array)[at] = (uint8_t)narrow_bits(single, 4, 3); break;
        case FLOAT8_E5M2: ((uint8_t *)array)[at] = (uint8_t)narrow_bits(single, 5, 2); break;
        case BFLOAT16: ((uint16_t *)array)[at] = (uint16_t)(bits >> 16); break;
        case FLOAT32: ((float *)array)[at] = single; break;
        case FLOAT64: ((double *)array)[at] = value; break;
        case INT8: ((int8_t *)array)[at] = (int8_t)value; break;
        case INT16: ((int16_t *)array)[at] = (int16_t)value; break;
        case INT32: ((int32_t *)array)[at] = (int32_t)value; break;
        case INT64: ((int64_t *)array)[at] = (int64_t)value; break;
        case UINT8: ((uint8_t *)array)[at] = (uint8_t)value; break;
        case UINT16: ((uint16_t *)array)[at] = (uint16_t)value; break;
        case UINT32: ((uint32_t *)array)[at] = (uint32_t)value; break;
        case UINT64: ((uint64_t *)array)[at] = (uint64_t)value; break;
        case BOOL: ((uint8_t *)array)[at] = (uint8_t)value; break;
    }
}

static double number(const void *array, size_t at, enum dtype dtype) {
    uint32_t bits;
    float single;
    switch (dtype) {
        case FLOAT16: return narrow_value(((const uint16_t *)array)[at], 5, 10, 0);
        case FLOAT8_E4M3FN: return narrow_value(((const uint8_t *)array)[at], 4, 3, 1);
        case FLOAT8_E5M2: return narrow_value(((const uint8_t *)array)[at], 5, 2, 0);
        case BFLOAT16:
            bits = (uint32_t)((const uint16_t *)array)[at] << 16;
            memcpy(&single, &bits, sizeof single);
            return single;
        case FLOAT32: return ((const float *)array)[at];
        case FLOAT64: return ((const double *)array)[at];
        case INT8: return ((const int8_t *)array)[at];
        case INT16: return ((const int16_t *)array)[at];
        case INT32: return ((const int32_t *)array)[at];
        case INT64: return (double)((const int64_t *)array)[at];
        case UINT8: return ((const uint8_t *)array)[at];
        case UINT16: return ((const uint16_t *)array)[at];
        case UINT32: return ((const uint32_t *)array)[at];
        case UINT64: return (double)((const uint64_t *)array)[at];
        case BOOL: return ((const uint8_t *)array)[at];
    }
    return NAN;
}

/* Test inputs in their buffers; one byte all over the others, so that what is not written shows. */
static void fill_buffers(struct session *session, const struct test *test, int poison) {
    uint64_t position = 0;
    for (size_t b = 0; b < COUNT(BUFFERS); b++) {
        const struct buffer *buffer = &BUFFERS[b];
        void *contents = allocate(bytes_of(buffer));
        memset(contents, poison, bytes_of(buffer));
        if (buffer->role == INPUT || buffer->updated) {
            for (size_t i = 0; i < buffer->elements; i++)
                store(contents, i, buffer->dtype,
                      value_of(word_at(test->seed, position, i), buffer, test->magnitude));
            position++;
        }
        write_memory(session->queue, session->memory[b], bytes_of(buffer), contents);
        free(contents);
    }
}

/* ---- the comparison ---- */

static int is_right(double got, const struct point *point) {
    return fabs(got - point->want) <= point->allowed || got == point->want || (isnan(got) && isnan(point->want));
}

static int passes(struct session *session, const char *title, const struct expectation *expected) {
    const struct buffer *buffer = &BUFFERS[expected->buffer];
    const struct point *first = NULL;
    void *contents = allocate(bytes_of(buffer));
    size_t wrong = 0;
    read_memory(session->queue, session->memory[expected->buffer], bytes_of(buffer), contents);
    for (size_t i = 0; i < expected->count; i++) {
        const struct point *point = &expected->points[i];
        if (is_right(number(contents, point->offset, buffer->dtype), point)) continue;
        if (!wrong++) first = point;
    }
    if (wrong)
        printf("%s: %zu of %zu compared elements of %s are wrong, such as element %zu = %g, expected %g\n", title, wrong,
               expected->count, buffer->name, first->offset, number(contents, first->offset, buffer->dtype), first->want);
    else
        printf("%s: %zu elements of %s are right\n", title, expected->count, buffer->name);
    free(contents);
    return !wrong;
}

int main(int count, char **arguments) {
    const char *directory = ".", *wanted = NULL;
    int any = 0, passed = 1;
    double seconds = 0;
    for (int i = 1; i < count; i++) {
        if (strcmp(arguments[i], "--any-device") == 0) any = 1;
        else if (strcmp(arguments[i], "--device") == 0) {
            if (i + 1 == count) cannot_run("--device lacks its TEXT; expected a part of a device's \"PLATFORM: NAME\"");
            wanted = arguments[++i];
        }
        else if (arguments[i][0] != '-') directory = arguments[i];
        else cannot_run("%s is no option; expected [--any-device] [--device TEXT] [DIRECTORY]", arguments[i]);
    }
    const char *missing = open_opencl();
    if (missing)
        cannot_run("%s; OPENCL_LIBRARY may name another library, and `make check-pip` takes that of "
                   "pip install \"pyopencl[pocl]\"", missing);
    struct session session = open_session(choose_device(any, wanted), directory);
    for (size_t t = 0; t < COUNT(TESTS); t++) {
        fill_buffers(&session, &TESTS[t], t % 2 ? 0x7F : 0xFF);
        run_launches(session.queue, session.kernels, 1);
        seconds = run_launches(session.queue, session.kernels, 0);
        for (int e = 0; e < TESTS[t].count; e++) passed &= passes(&session, TESTS[t].title, &TESTS[t].expectations[e]);
    }
    printf("%.4g us (%s time of one call)\n%s\n", seconds * 1e6, clock_told, passed ? "PASSED" : "FAILED");
    return passed ? 0 : 1;
}
