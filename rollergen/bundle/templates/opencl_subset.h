/* The part of OpenCL 1.2 that main.c uses, declared here so that neither headers nor a development package are
 * needed.  Types and values are those of the Khronos headers (CL/cl.h); the library is opened when the program
 * starts: $OPENCL_LIBRARY, or the system's own. */
#ifndef OPENCL_SUBSET_H
#define OPENCL_SUBSET_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef int32_t cl_int;
typedef uint32_t cl_uint;
typedef uint64_t cl_ulong;
typedef cl_ulong cl_bitfield;
typedef struct opaque_platform *cl_platform_id;
typedef struct opaque_device *cl_device_id;
typedef struct opaque_context *cl_context;
typedef struct opaque_queue *cl_command_queue;
typedef struct opaque_memory *cl_mem;
typedef struct opaque_program *cl_program;
typedef struct opaque_kernel *cl_kernel;
typedef struct opaque_event *cl_event;
typedef void (*context_notify)(const char *, const void *, size_t, void *);
typedef void (*program_notify)(cl_program, void *);

enum {
    CL_SUCCESS = 0,
    CL_TRUE = 1,
    CL_MEM_READ_WRITE = 1,
    CL_DEVICE_TYPE_CPU = 2,
    CL_QUEUE_PROFILING_ENABLE = 2,
    CL_PLATFORM_NAME = 0x0902,
    CL_DEVICE_TYPE = 0x1000,
    CL_DEVICE_NAME = 0x102B,
    CL_DEVICE_VERSION = 0x102F,
    CL_PROGRAM_BUILD_LOG = 0x1183,
    CL_PROFILING_COMMAND_START = 0x1282,
    CL_PROFILING_COMMAND_END = 0x1283
};
#define CL_DEVICE_TYPE_ALL 0xFFFFFFFFu

/* FUNCTION(result, name, parameters) */
#define OPENCL_FUNCTIONS(FUNCTION)                                                                                     \
    FUNCTION(cl_int, clGetPlatformIDs, (cl_uint, cl_platform_id *, cl_uint *))                                         \
    FUNCTION(cl_int, clGetPlatformInfo, (cl_platform_id, cl_uint, size_t, void *, size_t *))                           \
    FUNCTION(cl_int, clGetDeviceIDs, (cl_platform_id, cl_bitfield, cl_uint, cl_device_id *, cl_uint *))                \
    FUNCTION(cl_int, clGetDeviceInfo, (cl_device_id, cl_uint, size_t, void *, size_t *))                               \
    FUNCTION(cl_context, clCreateContext,                                                                              \
             (const intptr_t *, cl_uint, const cl_device_id *, context_notify, void *, cl_int *))                      \
    FUNCTION(cl_command_queue, clCreateCommandQueue, (cl_context, cl_device_id, cl_bitfield, cl_int *))                \
    FUNCTION(cl_program, clCreateProgramWithSource, (cl_context, cl_uint, const char **, const size_t *, cl_int *))    \
    FUNCTION(cl_int, clBuildProgram,                                                                                   \
             (cl_program, cl_uint, const cl_device_id *, const char *, program_notify, void *))                        \
    FUNCTION(cl_int, clGetProgramBuildInfo, (cl_program, cl_device_id, cl_uint, size_t, void *, size_t *))             \
    FUNCTION(cl_kernel, clCreateKernel, (cl_program, const char *, cl_int *))                                          \
    FUNCTION(cl_int, clSetKernelArg, (cl_kernel, cl_uint, size_t, const void *))                                       \
    FUNCTION(cl_mem, clCreateBuffer, (cl_context, cl_bitfield, size_t, void *, cl_int *))                              \
    FUNCTION(cl_int, clEnqueueWriteBuffer,                                                                             \
             (cl_command_queue, cl_mem, cl_uint, size_t, size_t, const void *, cl_uint, const cl_event *, cl_event *)) \
    FUNCTION(cl_int, clEnqueueReadBuffer,                                                                              \
             (cl_command_queue, cl_mem, cl_uint, size_t, size_t, void *, cl_uint, const cl_event *, cl_event *))       \
    FUNCTION(cl_int, clEnqueueNDRangeKernel,                                                                           \
             (cl_command_queue, cl_kernel, cl_uint, const size_t *, const size_t *, const size_t *, cl_uint,           \
              const cl_event *, cl_event *))                                                                           \
    FUNCTION(cl_int, clFinish, (cl_command_queue))                                                                     \
    FUNCTION(cl_int, clGetEventProfilingInfo, (cl_event, cl_uint, size_t, void *, size_t *))                           \
    FUNCTION(cl_int, clReleaseEvent, (cl_event))

#define OPENCL_FIELD(result, name, parameters) result(*name) parameters;
static struct {
    OPENCL_FUNCTIONS(OPENCL_FIELD)
} cl;
#undef OPENCL_FIELD

/* Opens the library and looks its functions up.  Returns NULL, or what is missing. */
static const char *open_opencl(void) {
    const char *path = getenv("OPENCL_LIBRARY");
#ifdef __APPLE__
    if (!path) path = "/System/Library/Frameworks/OpenCL.framework/OpenCL";
#else
    if (!path) path = "libOpenCL.so.1";
#endif
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) return dlerror();
#define OPENCL_LOOK_UP(result, name, parameters)                                                                       \
    *(void **)&cl.name = dlsym(library, #name);                                                                        \
    if (!cl.name) return "the OpenCL library lacks " #name;
    OPENCL_FUNCTIONS(OPENCL_LOOK_UP)
#undef OPENCL_LOOK_UP
    return NULL;
}

#endif
