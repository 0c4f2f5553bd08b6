/* Shows the folder that FAKE_KFD names as /sys/class/kfd to a process and its children. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *moved(const char *path, char *room) {
    static const char place[] = "/sys/class/kfd";
    const char *folder = getenv("FAKE_KFD");
    if (!folder || !path || strncmp(path, place, sizeof place - 1)) return path;
    snprintf(room, 4096, "%s%s", folder, path + sizeof place - 1);
    return room;
}
#define OPENS(name) \
    int name(const char *path, int flags, ...) { \
        static int (*real)(const char *, int, ...); \
        char room[4096]; va_list rest; va_start(rest, flags); \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; va_end(rest); \
        if (!real) real = dlsym(RTLD_NEXT, #name); \
        return real(moved(path, room), flags, mode); \
    }
OPENS(open)
OPENS(open64)
DIR *opendir(const char *path) {
    static DIR *(*real)(const char *);
    char room[4096];
    if (!real) real = dlsym(RTLD_NEXT, "opendir");
    return real(moved(path, room));
}
