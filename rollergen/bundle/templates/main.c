/* Self-test of the kernel saved in this directory: plain OpenCL and libc, see README.md.
 *
 *     ./selftest [--any-device] [--device TEXT] [DIRECTORY]
 *
 * DIRECTORY (default: the current one) holds the source.  Exit codes: 0 passed, 1 wrong results, 2 cannot run here.
 * A program of your own does what `main` does: choose_device, open_session, write inputs, launch, read outputs. */
#define _GNU_SOURCE
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opencl_subset.h"
#include "pocl_cpu_name.h"

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

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const size_t ITEM_BYTES[] = {2, 2, 1, 1, 4, 8, 1, 2, 4, 8, 1, 2, 4, 8, 1};
static const int SIGNIFICANT_BITS[] = {11, 8, 4, 3, 24, 53};

struct session {
    cl_device_id device;
    cl_context context;
    cl_command_queue queue;
    cl_kernel kernels[COUNT(LAUNCHES)];
    cl_mem memory[COUNT(BUFFERS)];
};

static void cannot_run(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "cannot run here: ");
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    exit(2);
}

static void check(cl_int status, const char *what) {
    if (status != CL_SUCCESS) cannot_run("%s failed with OpenCL error %d", what, (int)status);
}

static void *allocate(size_t bytes) {
    void *memory = malloc(bytes ? bytes : 1);
    if (!memory) cannot_run("%zu bytes of memory are not to be had", bytes);
    return memory;
}

/* ---- the device ---- */

static int contains(const char *text, const char *part) { return strcasestr(text, part) != NULL; }

static int suits(cl_device_id device, const char *name, int any, const char *wanted) {
    cl_bitfield type = 0;
    if (wanted) return contains(name, wanted);
    if (any) return 1;
    check(cl.clGetDeviceInfo(device, CL_DEVICE_TYPE, sizeof type, &type, NULL), "clGetDeviceInfo");
    if (DEVICE_IS_CPU) return (type & CL_DEVICE_TYPE_CPU) != 0;
    for (size_t i = 0; i < COUNT(DEVICE_NAMES); i++)
        if (contains(name, DEVICE_NAMES[i])) return 1;
    return 0;
}

/* PoCL does not compile for a processor that it does not know: see pocl_cpu_name.h. */
static void mend_if_pocl(cl_platform_id platform, cl_device_id device) {
    char name[256] = "", version[512] = "";
    check(cl.clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof name, name, NULL), "clGetPlatformInfo");
    check(cl.clGetDeviceInfo(device, CL_DEVICE_VERSION, sizeof version, version, NULL), "clGetDeviceInfo");
    if (strcmp(name, "Portable Computing Language") == 0 && mend_cpu_name(device, version) != 0)
        cannot_run("PoCL (%s) does not know this processor; use a newer PoCL", version);
}

/* The first device that suits; says on stdout which one. */
static cl_device_id choose_device(int any, const char *wanted) {
    cl_platform_id platforms[16];
    cl_device_id devices[64];
    char name[512], here[2048] = "";
    cl_uint platform_count = 0, device_count;
    if (cl.clGetPlatformIDs(COUNT(platforms), platforms, &platform_count) != CL_SUCCESS) platform_count = 0;
    if (platform_count > COUNT(platforms)) platform_count = COUNT(platforms);
    for (cl_uint p = 0; p < platform_count; p++) {
        cl_int status = cl.clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, COUNT(devices), devices, &device_count);
        if (status != CL_SUCCESS) continue;
        for (cl_uint d = 0; d < device_count && d < COUNT(devices); d++) {
            check(cl.clGetDeviceInfo(devices[d], CL_DEVICE_NAME, sizeof name, name, NULL), "clGetDeviceInfo");
            if (suits(devices[d], name, any, wanted)) {
                mend_if_pocl(platforms[p], devices[d]);
                printf("%s\non %s; built for %s: %s\n", SIGNATURE, name, DEVICE_TITLE, TIMES);
                return devices[d];
            }
            size_t used = strlen(here);
            snprintf(here + used, sizeof here - used, "%s%s", used ? ", " : "", name);
        }
    }
    cannot_run("needs %s; OpenCL devices here: %s; --any-device takes any of them", wanted ? wanted : DEVICE_TITLE,
               *here ? here : "none");
    return NULL;
}

/* ---- the kernel ---- */

static char *file_text(const char *directory, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0) cannot_run("%s cannot be read", path);
    long size = ftell(file);
    rewind(file);
    char *text = allocate((size_t)size + 1);
    text[fread(text, 1, (size_t)size, file)] = '\0';
    fclose(file);
    return text;
}

static cl_program build(struct session *session, const char *directory) {
    cl_int status;
    char *text = file_text(directory, SOURCE_FILE);
    const char *texts[] = {text};
    cl_program program = cl.clCreateProgramWithSource(session->context, 1, texts, NULL, &status);
    check(status, "clCreateProgramWithSource");
    if (cl.clBuildProgram(program, 1, &session->device, "-w", NULL, NULL) != CL_SUCCESS) {
        static char log[16384];
        cl.clGetProgramBuildInfo(program, session->device, CL_PROGRAM_BUILD_LOG, sizeof log - 1, log, NULL);
        cannot_run("the device does not compile %s: %s", SOURCE_FILE, log);
    }
    free(text);
    return program;
}

static size_t bytes_of(const struct buffer *buffer) { return buffer->elements * ITEM_BYTES[buffer->dtype]; }

static struct session open_session(cl_device_id device, const char *directory) {
    cl_int status;
    struct session session = {.device = device};
    session.context = cl.clCreateContext(NULL, 1, &device, NULL, NULL, &status);
    check(status, "clCreateContext");
    session.queue = cl.clCreateCommandQueue(session.context, device, CL_QUEUE_PROFILING_ENABLE, &status);
    check(status, "clCreateCommandQueue");
    cl_program program = build(&session, directory);
    for (size_t b = 0; b < COUNT(BUFFERS); b++) {
        size_t bytes = bytes_of(&BUFFERS[b]);
        session.memory[b] = cl.clCreateBuffer(session.context, CL_MEM_READ_WRITE, bytes ? bytes : 1, NULL, &status);
        check(status, "clCreateBuffer");
    }
    for (int l = 0; l < (int)COUNT(LAUNCHES); l++) {
        session.kernels[l] = cl.clCreateKernel(program, LAUNCHES[l].entry, &status);
        check(status, LAUNCHES[l].entry);
        for (int a = 0; a < LAUNCHES[l].argument_count; a++) {
            cl_mem *memory = &session.memory[LAUNCHES[l].arguments[a]];
            check(cl.clSetKernelArg(session.kernels[l], (cl_uint)a, sizeof *memory, memory), "clSetKernelArg");
        }
    }
    return session;
}

static void write_buffer(struct session *session, size_t b, const void *contents) {
    size_t bytes = bytes_of(&BUFFERS[b]);
    if (!bytes) return;
    check(cl.clEnqueueWriteBuffer(session->queue, session->memory[b], CL_TRUE, 0, bytes, contents, 0, NULL, NULL),
          "clEnqueueWriteBuffer");
}

static void read_buffer(struct session *session, size_t b, void *contents) {
    size_t bytes = bytes_of(&BUFFERS[b]);
    if (!bytes) return;
    check(cl.clEnqueueReadBuffer(session->queue, session->memory[b], CL_TRUE, 0, bytes, contents, 0, NULL, NULL),
          "clEnqueueReadBuffer");
}

static double seconds_of(cl_event event) {
    cl_ulong start = 0, end = 0;
    check(cl.clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_START, sizeof start, &start, NULL), "profiling");
    check(cl.clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof end, &end, NULL), "profiling");
    check(cl.clReleaseEvent(event), "clReleaseEvent");
    return (double)(end - start) * 1e-9;
}

/* Runs the launches that pack constant inputs (`once`), or those of a call; the device's own seconds for them. */
static double launch(struct session *session, int once) {
    cl_event events[COUNT(LAUNCHES)];
    double seconds = 0;
    for (int l = 0; l < (int)COUNT(LAUNCHES); l++) {
        size_t total = LAUNCHES[l].blocks * LAUNCHES[l].threads;
        if (LAUNCHES[l].once == once)
            check(cl.clEnqueueNDRangeKernel(session->queue, session->kernels[l], 1, NULL, &total, &LAUNCHES[l].threads, 0,
                                            NULL, &events[l]),
                  LAUNCHES[l].entry);
    }
    check(cl.clFinish(session->queue), "clFinish");
    for (int l = 0; l < (int)COUNT(LAUNCHES); l++)
        if (LAUNCHES[l].once == once) seconds += seconds_of(events[l]);
    return seconds;
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
        write_buffer(session, b, contents);
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
    read_buffer(session, (size_t)expected->buffer, contents);
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
        else if (strcmp(arguments[i], "--device") == 0 && i + 1 < count) wanted = arguments[++i];
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
        launch(&session, 1);
        seconds = launch(&session, 0);
        for (int e = 0; e < TESTS[t].count; e++) passed &= passes(&session, TESTS[t].title, &TESTS[t].expectations[e]);
    }
    printf("%.4g us (device's own time of one call)\n%s\n", seconds * 1e6, passed ? "PASSED" : "FAILED");
    return passed ? 0 : 1;
}
