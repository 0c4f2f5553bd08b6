/* NVML without GPUs: reads the file that FAKE_NVML names whenever it is initialised; without one,
   there are none. As strict as the original: not before the start, not with wrong handles, not
   with too little room. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK, UNINITIALIZED, INVALID, UNSUPPORTED, NO_PERMISSION, NOT_FOUND = 6, TOO_SMALL = 7, LOST = 15 };
enum { MOST = 16, MOST_PARTS = 7, MOST_PROCESSES = 200 };

typedef struct {
    char uuid[96], model[96];
    int is_part, is_lost, mig, gpu_instance, compute_instance, busy, hole;
    unsigned long long free;
    unsigned pids[MOST_PROCESSES], mps[MOST_PROCESSES];
    unsigned count, mps_count;
} Device;

typedef struct { unsigned pid; unsigned long long memory; unsigned gpu, compute; } Process;

static Device gpus[MOST], parts[MOST][MOST_PARTS];
static unsigned count, part_count[MOST];
static int users, failure;

int fake_nvml_users(void) { return users; }

static void load(void) {
    count = 0; failure = 0;
    memset(gpus, 0, sizeof gpus); memset(parts, 0, sizeof parts); memset(part_count, 0, sizeof part_count);
    const char *path = getenv("FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[512], word[32];
    Device *last = NULL;
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "%31s", word) != 1) continue;
        if (!strcmp(word, "fails")) sscanf(line, "%*s %d", &failure);
        if (!strcmp(word, "gpu")) {
            last = &gpus[count++];
            sscanf(line, "%*s %95s %95s %d %d %d %llu", last->uuid, last->model, &last->mig, &last->is_lost,
                   &last->busy, &last->free);
        }
        if (!strcmp(word, "part")) {
            last = &parts[count - 1][part_count[count - 1]++];
            last->is_part = 1;
            sscanf(line, "%*s %95s %d %d", last->uuid, &last->gpu_instance, &last->compute_instance);
        }
        if (!strcmp(word, "hole")) parts[count - 1][part_count[count - 1]++].hole = 1;
        if (!strcmp(word, "pid")) sscanf(line, "%*s %u", &last->pids[last->count++]);
        if (!strcmp(word, "mps")) sscanf(line, "%*s %u", &last->mps[last->mps_count++]);
    }
    if (file) fclose(file);
}

static int check(Device *device) {
    if (!users) return UNINITIALIZED;
    char *place = (char *)device;
    int known = (place >= (char *)gpus && place < (char *)(gpus + MOST) && (place - (char *)gpus) % sizeof(Device) == 0)
        || (place >= (char *)parts && place < (char *)(parts + MOST) && (place - (char *)parts) % sizeof(Device) == 0);
    return known ? OK : INVALID;
}

int nvmlInit_v2(void) { load(); if (failure) return failure; users++; return OK; }
int nvmlShutdown(void) { if (!users) return UNINITIALIZED; users--; return OK; }
const char *nvmlErrorString(int code) { return code == 9 ? "Driver Not Loaded" : code == LOST ? "GPU is lost" : "Other"; }

int nvmlDeviceGetCount_v2(unsigned *found) { if (!users) return UNINITIALIZED; *found = count; return OK; }

int nvmlDeviceGetHandleByIndex_v2(unsigned number, Device **found) {
    if (!users) return UNINITIALIZED;
    if (number >= count) return INVALID;
    if (gpus[number].is_lost) return LOST;
    *found = &gpus[number];
    return OK;
}

static int text(Device *device, const char *value, char *buffer, unsigned room) {
    int bad = check(device);
    if (bad) return bad;
    if (strlen(value) + 1 > room) return TOO_SMALL;
    strcpy(buffer, value);
    return OK;
}
int nvmlDeviceGetUUID(Device *d, char *buffer, unsigned room) { return text(d, d->uuid, buffer, room); }
int nvmlDeviceGetName(Device *d, char *buffer, unsigned room) { return text(d, d->model, buffer, room); }

int nvmlDeviceGetMigMode(Device *d, unsigned *current, unsigned *pending) {
    int bad = check(d);
    if (bad || d->is_part) return bad ? bad : INVALID;
    if (d->mig < 0) return UNSUPPORTED;
    *current = *pending = d->mig;
    return OK;
}
int nvmlDeviceGetMaxMigDeviceCount(Device *d, unsigned *most) {
    int bad = check(d); if (!bad) *most = MOST_PARTS; return bad;
}
int nvmlDeviceGetMigDeviceHandleByIndex(Device *d, unsigned number, Device **found) {
    int bad = check(d);
    if (bad || d->is_part || number >= MOST_PARTS) return bad ? bad : INVALID;
    if (number >= part_count[d - gpus] || parts[d - gpus][number].hole) return NOT_FOUND;
    *found = &parts[d - gpus][number];
    return OK;
}
int nvmlDeviceGetGpuInstanceId(Device *d, unsigned *id) {
    int bad = check(d); if (!bad) *id = d->gpu_instance; return bad ? bad : d->is_part ? OK : UNSUPPORTED;
}
int nvmlDeviceGetComputeInstanceId(Device *d, unsigned *id) {
    int bad = check(d); if (!bad) *id = d->compute_instance; return bad ? bad : d->is_part ? OK : UNSUPPORTED;
}

static int list(Device *d, unsigned *pids, unsigned there, unsigned *room, Process *found) {
    int bad = check(d);
    if (bad) return bad;
    unsigned had = *room;
    *room = there;
    if (had < there) return TOO_SMALL;
    for (unsigned i = 0; i < there; i++) found[i] = (Process){pids[i], 1 << 20, d->gpu_instance, d->compute_instance};
    return OK;
}
int nvmlDeviceGetComputeRunningProcesses_v3(Device *d, unsigned *room, Process *found) {
    return list(d, d->pids, d->count, room, found);
}
int nvmlDeviceGetMPSComputeRunningProcesses_v3(Device *d, unsigned *room, Process *found) {
    return list(d, d->mps, d->mps_count, room, found);
}

int nvmlDeviceGetUtilizationRates(Device *d, unsigned rates[2]) {
    int bad = check(d);
    if (bad || d->mig == 1) return bad ? bad : UNSUPPORTED;
    rates[0] = d->busy; rates[1] = 0;
    return OK;
}
int nvmlDeviceGetMemoryInfo(Device *d, unsigned long long memory[3]) {
    int bad = check(d);
    if (!bad) { memory[0] = 1ull << 34; memory[1] = d->free; memory[2] = memory[0] - d->free; }
    return bad;
}
