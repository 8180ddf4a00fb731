/* The device that a saved kernel or model was built for, and what runs there: programs, memory, times.  Included behind
 * the tables, which say which device that is. */
#ifndef OPENCL_DEVICE_H
#define OPENCL_DEVICE_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "opencl_subset.h"
#include "pocl_cpu_name.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

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

static int contains(const char *text, const char *part) { return strcasestr(text, part) != NULL; }

/* What the drivers call a device: "PLATFORM: NAME". */
struct label {
    char platform[256], name[512], both[800];
};

static struct label label_of(cl_platform_id platform, cl_device_id device) {
    struct label label = {"", "", ""};
    check(cl.clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof label.platform, label.platform, NULL),
          "clGetPlatformInfo");
    check(cl.clGetDeviceInfo(device, CL_DEVICE_NAME, sizeof label.name, label.name, NULL), "clGetDeviceInfo");
    snprintf(label.both, sizeof label.both, "%s: %s", label.platform, label.name);
    return label;
}

static int suits(cl_device_id device, const struct label *label, int any, const char *wanted) {
    cl_bitfield type = 0;
    if (wanted) return contains(label->both, wanted);
    if (any) return 1;
    check(cl.clGetDeviceInfo(device, CL_DEVICE_TYPE, sizeof type, &type, NULL), "clGetDeviceInfo");
    if (DEVICE_IS_CPU) return (type & CL_DEVICE_TYPE_CPU) != 0;
    if (!contains(label->platform, DEVICE_PLATFORM)) return 0;
    for (size_t i = 0; i < COUNT(DEVICE_NAMES); i++)
        if (contains(label->name, DEVICE_NAMES[i])) return 1;
    return 0;
}

/* PoCL does not compile for a processor that it does not know: see pocl_cpu_name.h. */
static void mend_if_pocl(cl_device_id device, const struct label *label) {
    char version[512] = "";
    check(cl.clGetDeviceInfo(device, CL_DEVICE_VERSION, sizeof version, version, NULL), "clGetDeviceInfo");
    if (strcmp(label->platform, "Portable Computing Language") == 0 && mend_cpu_name(device, version) != 0)
        cannot_run("PoCL (%s) does not know this processor; use a newer PoCL", version);
}

/* The first device that suits; says on stdout which one. */
static cl_device_id choose_device(int any, const char *wanted) {
    cl_platform_id platforms[16];
    cl_device_id devices[64];
    char here[2048] = "";
    cl_uint platform_count = 0, device_count;
    if (cl.clGetPlatformIDs(COUNT(platforms), platforms, &platform_count) != CL_SUCCESS) platform_count = 0;
    if (platform_count > COUNT(platforms)) platform_count = COUNT(platforms);
    for (cl_uint p = 0; p < platform_count; p++) {
        cl_int status = cl.clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, COUNT(devices), devices, &device_count);
        if (status != CL_SUCCESS) continue;
        for (cl_uint d = 0; d < device_count && d < COUNT(devices); d++) {
            struct label label = label_of(platforms[p], devices[d]);
            if (suits(devices[d], &label, any, wanted)) {
                mend_if_pocl(devices[d], &label);
                printf("%s\non %s; built for %s: %s\n", SIGNATURE, label.name, DEVICE_TITLE, TIMES);
                return devices[d];
            }
            size_t used = strlen(here);
            snprintf(here + used, sizeof here - used, "%s%s", used ? ", " : "", label.both);
        }
    }
    if (!*here) cannot_run("needs %s; no OpenCL device is here; make check-pip (for a model's files: run-pip) uses that of pip's PoCL", DEVICE_TITLE);
    if (wanted)
        cannot_run("needs one whose \"PLATFORM: NAME\" contains \"%s\"; OpenCL devices here: %s; --any-device takes any "
                   "of them", wanted, here);
    cannot_run("needs %s; OpenCL devices here: %s; --any-device takes any of them", DEVICE_TITLE, here);
    return NULL;
}

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

static cl_program build_program(cl_context context, cl_device_id device, const char *directory, const char *name) {
    cl_int status;
    char *text = file_text(directory, name);
    const char *texts[] = {text};
    cl_program program = cl.clCreateProgramWithSource(context, 1, texts, NULL, &status);
    check(status, "clCreateProgramWithSource");
    if (cl.clBuildProgram(program, 1, &device, "-w", NULL, NULL) != CL_SUCCESS) {
        static char log[16384];
        cl.clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, sizeof log - 1, log, NULL);
        cannot_run("the device does not compile %s: %s", name, log);
    }
    free(text);
    return program;
}

static cl_mem new_memory(cl_context context, size_t bytes) {
    cl_int status;
    cl_mem memory = cl.clCreateBuffer(context, CL_MEM_READ_WRITE, bytes ? bytes : 1, NULL, &status);
    check(status, "clCreateBuffer");
    return memory;
}

static void write_memory(cl_command_queue queue, cl_mem memory, size_t bytes, const void *contents) {
    if (bytes)
        check(cl.clEnqueueWriteBuffer(queue, memory, CL_TRUE, 0, bytes, contents, 0, NULL, NULL), "clEnqueueWriteBuffer");
}

static void read_memory(cl_command_queue queue, cl_mem memory, size_t bytes, void *contents) {
    if (bytes)
        check(cl.clEnqueueReadBuffer(queue, memory, CL_TRUE, 0, bytes, contents, 0, NULL, NULL), "clEnqueueReadBuffer");
}

static double seconds_of(cl_event event) {
    cl_ulong start = 0, end = 0;
    check(cl.clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_START, sizeof start, &start, NULL), "profiling");
    check(cl.clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof end, &end, NULL), "profiling");
    check(cl.clReleaseEvent(event), "clReleaseEvent");
    return (double)(end - start) * 1e-9;
}

static cl_kernel new_kernel(cl_program program, const char *entry, int arguments, const int *numbers, cl_mem *memory) {
    cl_int status;
    cl_kernel kernel = cl.clCreateKernel(program, entry, &status);
    check(status, entry);
    for (int a = 0; a < arguments; a++)
        check(cl.clSetKernelArg(kernel, (cl_uint)a, sizeof *memory, &memory[numbers[a]]), "clSetKernelArg");
    return kernel;
}

/* Whose time `run_launches` told last. */
static const char *clock_told = "device's own";

/* Seconds.  No launch is over so soon: events that say so count nothing (rusticl of Mesa 22: 1 ns always). */
#define SHORTEST_S 1e-8

static double host_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Runs the launches that pack constant inputs (`once`), or those of a call; the device's own seconds for them, or the
 * host's where events count nothing. */
static double run_launches(cl_command_queue queue, const cl_kernel *kernels, int once) {
    cl_event events[COUNT(LAUNCHES)];
    int launched = 0;
    double seconds = 0, start = host_seconds();
    for (int l = 0; l < (int)COUNT(LAUNCHES); l++) {
        size_t total = LAUNCHES[l].blocks * LAUNCHES[l].threads;
        if (LAUNCHES[l].once == once)
            check(cl.clEnqueueNDRangeKernel(queue, kernels[l], 1, NULL, &total, &LAUNCHES[l].threads, 0,
                                            NULL, &events[l]),
                  LAUNCHES[l].entry);
    }
    check(cl.clFinish(queue), "clFinish");
    double host = host_seconds() - start;
    for (int l = 0; l < (int)COUNT(LAUNCHES); l++)
        if (LAUNCHES[l].once == once) seconds += seconds_of(events[l]), launched++;
    int counted = seconds >= SHORTEST_S * launched;
    clock_told = counted ? "device's own" : "host's";
    return counted ? seconds : host;
}

#endif
