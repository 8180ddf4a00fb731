/* Runs the model saved in this directory: plain OpenCL and libc.
 *
 *     ./run [--any-device] [--device TEXT] [--directory DIRECTORY] FILE.npy ...
 *
 * A NumPy file for each of the model's inputs, then the name of one for each of its outputs, in their order; without
 * files: what they are.  Narrow floats that NumPy lacks go in and come out as their bits.  Exit codes: 0 done, 2 cannot
 * run here.  A program of your own does what `main` does. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opencl_subset.h"

/* A weight lies in WEIGHTS_FILE from `offset`; other values have NOWHERE.  `type` and `shape` as .npy files have them. */
struct value {
    const char *name, *type, *shape;
    size_t bytes, offset;
};
#define NOWHERE SIZE_MAX

/* `blocks` groups of `threads`; `arguments` number the values.  `once`: packs weights. */
struct launch {
    int program;
    const char *entry;
    size_t blocks, threads;
    int once, argument_count;
    const int *arguments;
};

#include "model_tables.h"
#include "opencl_device.h"

struct session {
    cl_command_queue queue;
    cl_kernel kernels[COUNT(LAUNCHES)];
    cl_mem memory[COUNT(VALUES)];
};

/* ---- the model ---- */

static void read_at(FILE *file, const char *path, size_t offset, size_t bytes, void *contents) {
    if (fseek(file, (long)offset, SEEK_SET) != 0 || fread(contents, 1, bytes, file) != bytes)
        cannot_run("%s ends before byte %zu", path, offset + bytes);
}

/* The CRC-32 of zlib. */
static uint32_t checksum(FILE *file) {
    uint32_t table[256], sum = UINT32_MAX;
    for (uint32_t i = 0; i < 256; i++) {
        table[i] = i;
        for (int bit = 0; bit < 8; bit++) table[i] = table[i] >> 1 ^ (table[i] & 1 ? UINT32_C(0xEDB88320) : 0);
    }
    static unsigned char piece[1 << 16];
    for (size_t held; (held = fread(piece, 1, sizeof piece, file)) > 0;)
        for (size_t i = 0; i < held; i++) sum = sum >> 8 ^ table[(sum ^ piece[i]) & 255];
    return ~sum;
}

static void write_weights(struct session *session, const char *directory) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, WEIGHTS_FILE);
    FILE *file = fopen(path, "rb");
    if (!file) cannot_run("%s cannot be read", path);
    if (checksum(file) != WEIGHTS_CHECKSUM) cannot_run("%s is not the file that was saved", path);
    for (size_t v = 0; v < COUNT(VALUES); v++) {
        if (VALUES[v].offset == NOWHERE) continue;
        void *contents = allocate(VALUES[v].bytes);
        read_at(file, path, VALUES[v].offset, VALUES[v].bytes, contents);
        write_memory(session->queue, session->memory[v], VALUES[v].bytes, contents);
        free(contents);
    }
    fclose(file);
}

static struct session *open_session(cl_device_id device, const char *directory) {
    cl_int status;
    cl_program programs[COUNT(SOURCES)];
    struct session *session = allocate(sizeof *session);
    cl_context context = cl.clCreateContext(NULL, 1, &device, NULL, NULL, &status);
    check(status, "clCreateContext");
    session->queue = cl.clCreateCommandQueue(context, device, CL_QUEUE_PROFILING_ENABLE, &status);
    check(status, "clCreateCommandQueue");
    for (size_t p = 0; p < COUNT(SOURCES); p++) programs[p] = build_program(context, device, directory, SOURCES[p]);
    for (size_t v = 0; v < COUNT(VALUES); v++) session->memory[v] = new_memory(context, VALUES[v].bytes);
    for (size_t l = 0; l < COUNT(LAUNCHES); l++)
        session->kernels[l] = new_kernel(programs[LAUNCHES[l].program], LAUNCHES[l].entry, LAUNCHES[l].argument_count,
                                         LAUNCHES[l].arguments, session->memory);
    write_weights(session, directory);
    run_launches(session->queue, session->kernels, 1);
    return session;
}

/* ---- .npy files: a magic word, a version, the header's length, the header as Python would print it, the data ---- */

static int reads_as(const char *header, const char *key, const char *wanted) {
    const char *found = strstr(header, key);
    if (!found) return 0;
    found += strlen(key);
    while (*found == ' ') found++;
    return strncmp(found, wanted, strlen(wanted)) == 0;
}

static void *read_array(const char *path, const struct value *value) {
    unsigned char start[12] = {0};
    char type[64];
    FILE *file = fopen(path, "rb");
    if (!file) cannot_run("%s cannot be read", path);
    if (fread(start, 1, 10, file) != 10 || memcmp(start, "\x93NUMPY", 6) != 0) cannot_run("%s is no .npy file", path);
    size_t length = start[8] | (size_t)start[9] << 8, before = 10;
    if (start[6] > 1) {
        if (fread(start + 10, 1, 2, file) != 2) cannot_run("%s is no .npy file", path);
        length |= (size_t)start[10] << 16 | (size_t)start[11] << 24;
        before = 12;
    }
    char *header = allocate(length + 1);
    void *contents = allocate(value->bytes);
    read_at(file, path, before, length, header);
    header[length] = '\0';
    snprintf(type, sizeof type, "'%s'", value->type);
    if (!reads_as(header, "'descr':", type) || !reads_as(header, "'fortran_order':", "False") ||
        !reads_as(header, "'shape':", value->shape))
        cannot_run("%s holds %s; expected %s in C order, of shape %s, for %s", path, header, type, value->shape,
                   value->name);
    read_at(file, path, before + length, value->bytes, contents);
    free(header);
    fclose(file);
    return contents;
}

static void write_array(const char *path, const struct value *value, const void *contents) {
    char header[512];
    int length = snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }", value->type,
                          value->shape);
    int padded = (10 + length + 1 + 63) / 64 * 64 - 10; /* so that the data begin at a multiple of 64 bytes */
    unsigned char start[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)(padded & 255),
                               (unsigned char)(padded >> 8)};
    FILE *file = fopen(path, "wb");
    if (!file) cannot_run("%s cannot be written", path);
    fwrite(start, 1, sizeof start, file);
    fprintf(file, "%-*s\n", padded - 1, header);
    int whole = fwrite(contents, 1, value->bytes, file) == value->bytes;
    if (fclose(file) != 0 || !whole) cannot_run("%s cannot be written whole", path);
}

/* ---- the command ---- */

static void say_what_files(void) {
    for (size_t i = 0; i < COUNT(INPUTS); i++)
        printf("input  %s: '%s' %s\n", VALUES[INPUTS[i]].name, VALUES[INPUTS[i]].type, VALUES[INPUTS[i]].shape);
    for (size_t o = 0; o < COUNT(OUTPUTS); o++)
        printf("output %s: '%s' %s\n", VALUES[OUTPUTS[o]].name, VALUES[OUTPUTS[o]].type, VALUES[OUTPUTS[o]].shape);
}

int main(int count, char **arguments) {
    const char *directory = ".", *wanted = NULL, *files[COUNT(INPUTS) + COUNT(OUTPUTS)];
    size_t given = 0;
    int any = 0;
    for (int i = 1; i < count; i++) {
        if (strcmp(arguments[i], "--any-device") == 0) any = 1;
        else if (strcmp(arguments[i], "--device") == 0 && i + 1 < count) wanted = arguments[++i];
        else if (strcmp(arguments[i], "--directory") == 0 && i + 1 < count) directory = arguments[++i];
        else if (arguments[i][0] == '-') cannot_run("%s is no option; see the top of run.c", arguments[i]);
        else if (given == COUNT(files)) cannot_run("more than %zu files; expected one for each input and output", given);
        else files[given++] = arguments[i];
    }
    if (!given) {
        say_what_files();
        return 0;
    }
    if (given < COUNT(files)) cannot_run("%zu files; expected %zu: of each input and output", given, COUNT(files));
    void *inputs[COUNT(INPUTS)];
    for (size_t i = 0; i < COUNT(INPUTS); i++) inputs[i] = read_array(files[i], &VALUES[INPUTS[i]]);
    const char *missing = open_opencl();
    if (missing)
        cannot_run("%s; OPENCL_LIBRARY may name another library, and `make run-pip` takes that of "
                   "pip install \"pyopencl[pocl]\"", missing);
    struct session *session = open_session(choose_device(any, wanted), directory);
    for (size_t i = 0; i < COUNT(INPUTS); i++) {
        write_memory(session->queue, session->memory[INPUTS[i]], VALUES[INPUTS[i]].bytes, inputs[i]);
        free(inputs[i]);
    }
    double seconds = run_launches(session->queue, session->kernels, 0);
    for (size_t o = 0; o < COUNT(OUTPUTS); o++) {
        const struct value *value = &VALUES[OUTPUTS[o]];
        void *contents = allocate(value->bytes);
        read_memory(session->queue, session->memory[OUTPUTS[o]], value->bytes, contents);
        write_array(files[COUNT(INPUTS) + o], value, contents);
        free(contents);
    }
    printf("%.4g us (%s time of the first call)\n", seconds * 1e6, clock_told);
    return 0;
}
