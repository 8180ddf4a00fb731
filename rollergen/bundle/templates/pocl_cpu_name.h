/* A CPU name that PoCL's clang can use, where its LLVM does not know the host.
 *
 * PoCL asks LLVM for the host's name and passes it to clang as target CPU.  LLVM calls a CPU that is newer than
 * itself "generic", which clang for x86 refuses (pocl issue 1049), so that no kernel builds; LLVM 14 calls Zen 4
 * "znver3", which lacks AVX-512, and ends the process where it meets PoCL's builtins for AVX-512.  No build option and
 * no environment variable overrides the name.  It is a heap string that the device structure points to: found through
 * /proc/self/mem, which fails instead of faulting on a wrong address, it is overwritten with a name that clang
 * knows and whose features this processor has.  Only a string that reads exactly as one of these two is changed. */
#ifndef POCL_CPU_NAME_H
#define POCL_CPU_NAME_H

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HASWELL_FLAGS "avx2", "fma", "bmi1", "bmi2", "movbe", "f16c"
#define SKYLAKE_FLAGS HASWELL_FLAGS, "adx", "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"

/* Names newest first, with the flags of /proc/cpuinfo that each takes for granted; at most 24 bytes, which malloc
 * hands out at least (glibc, 64 bit). */
static const struct {
    const char *name;
    const char *flags[16];
} CPU_NAMES[] = {
    {"cooperlake", {SKYLAKE_FLAGS, "avx512_vnni", "avx512_bf16"}},
    {"cascadelake", {SKYLAKE_FLAGS, "avx512_vnni"}},
    {"skylake-avx512", {SKYLAKE_FLAGS}},
    {"haswell", {HASWELL_FLAGS}},
    {"x86-64", {"sse2"}},
};

/* The "flags" line of the first processor, words set between spaces; empty where there is none. */
static void read_cpu_flags(char *flags, size_t size) {
    FILE *file = fopen("/proc/cpuinfo", "r");
    flags[0] = '\0';
    while (file && fgets(flags, (int)size, file) && strncmp(flags, "flags", 5) != 0) flags[0] = '\0';
    if (file) fclose(file);
    flags[strcspn(flags, "\n")] = ' ';
}

static int has_flag(const char *flags, const char *flag) {
    size_t length = strlen(flag);
    for (const char *at = strstr(flags, flag); at; at = strstr(at + 1, flag))
        if (at != flags && at[-1] == ' ' && at[length] == ' ') return 1;
    return 0;
}

static const char *best_cpu_name(const char *flags) {
    for (size_t i = 0; i < sizeof CPU_NAMES / sizeof *CPU_NAMES; i++) {
        int all = 1;
        for (const char *const *flag = CPU_NAMES[i].flags; *flag; flag++) all = all && has_flag(flags, *flag);
        if (all) return CPU_NAMES[i].name;
    }
    return NULL;
}

/* Where the structure's pointer to this name (of at most 7 letters) points; NULL if there is none. */
static char *find_cpu_name(const void *structure, const char *name) {
    unsigned char block[2048];
    char *found = NULL;
    int memory = open("/proc/self/mem", O_RDONLY);
    if (memory < 0) return NULL;
    ssize_t count = pread(memory, block, sizeof block, (off_t)(uintptr_t)structure);
    for (ssize_t at = 0; !found && at + 8 <= count; at += 8) {
        uint64_t pointer;
        char text[8];
        memcpy(&pointer, block + at, sizeof pointer);
        if (pointer <= 4096 || pointer >= (uint64_t)1 << 47) continue;
        if (pread(memory, text, sizeof text, (off_t)pointer) == 8 && memcmp(text, name, strlen(name) + 1) == 0)
            found = (char *)(uintptr_t)pointer;
    }
    close(memory);
    return found;
}

/* Mends a mistaken name, in which the device's version ends, in PoCL's device structure.  Returns 0, or -1 where the
 * name is mistaken and this cannot be done here. */
static int mend_cpu_name(void *structure, const char *version) {
    static char flags[16384];
    const char *dash = strrchr(version, '-');
    const char *found = dash ? dash + 1 : version;
    read_cpu_flags(flags, sizeof flags);
    if (strcmp(found, "generic") != 0 && !(strcmp(found, "znver3") == 0 && has_flag(flags, "avx512f"))) return 0;
#if defined(__linux__) && defined(__x86_64__)
    const char *name = best_cpu_name(flags);
    char *mistaken = find_cpu_name(structure, found);
    if (!name || !mistaken) return -1;
    strcpy(mistaken, name);
    return 0;
#else
    (void)structure;
    return -1;
#endif
}

#endif
