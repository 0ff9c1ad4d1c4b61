/* Frames one way through a ring as memif's, copied in and out, between two processes on two
   processors: what the machine's memory allows, without a device, a stack or checks.

       ring SIZE SECONDS */

#define _GNU_SOURCE
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RING 1024
#define BUFFER 2048
/* Frames that one publication shows. */
#define BATCH 32
#define BURST 256

struct descriptor {
    uint16_t flags, region;
    uint32_t length, offset, metadata;
};

struct shared {
    _Alignas(64) _Atomic uint16_t head;
    _Alignas(64) _Atomic uint16_t tail;
    _Alignas(64) atomic_int is_over;
    _Alignas(64) struct descriptor descriptors[RING];
    _Alignas(4096) uint8_t buffers[RING][BUFFER];
};

static void pin(int core)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    sched_setaffinity(0, sizeof set, &set);
}

static void send_frames(struct shared *it, uint32_t size)
{
    uint8_t frame[BUFFER];
    uint16_t head = 0;
    memset(frame, 7, sizeof frame);
    while (!atomic_load_explicit(&it->is_over, memory_order_relaxed)) {
        uint16_t tail = atomic_load_explicit(&it->tail, memory_order_acquire);
        uint16_t room = RING - (uint16_t)(head - tail);
        if (room > BATCH)
            room = BATCH;
        for (uint16_t n = 0; n < room; n++, head++) {
            uint32_t at = head % RING;
            memcpy(it->buffers[at], frame, size);
            it->descriptors[at] = (struct descriptor){0, 0, size, at * BUFFER, 0};
        }
        if (room)
            atomic_store_explicit(&it->head, head, memory_order_release);
    }
}

static uint64_t receive(struct shared *it, uint64_t *sum)
{
    static uint8_t copy[BUFFER];
    uint16_t tail = atomic_load_explicit(&it->tail, memory_order_relaxed);
    uint16_t head = atomic_load_explicit(&it->head, memory_order_acquire);
    uint16_t count = head - tail;
    if (count > BURST)
        count = BURST;
    for (uint16_t n = 0; n < count; n++, tail++) {
        struct descriptor *next = &it->descriptors[tail % RING];
        uint32_t length = next->length, offset = next->offset;
        if (length > BUFFER || offset > sizeof it->buffers - BUFFER)
            exit(1);
        memcpy(copy, (uint8_t *)it->buffers + offset, length);
        *sum += copy[length - 1];
    }
    if (count)
        atomic_store_explicit(&it->tail, tail, memory_order_release);
    return count;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: ring SIZE SECONDS\n");
        return 2;
    }
    uint32_t size = atoi(argv[1]);
    double seconds = atof(argv[2]);
    int access = PROT_READ | PROT_WRITE, flags = MAP_SHARED | MAP_ANONYMOUS;
    struct shared *it = mmap(NULL, sizeof *it, access, flags, -1, 0);
    if (it == MAP_FAILED || size == 0 || size > BUFFER)
        return 2;
    pid_t child = fork();
    if (child == 0) {
        pin(1);
        send_frames(it, size);
        return 0;
    }
    pin(0);
    uint64_t frames = 0, sum = 0;
    double begin = now(), end;
    do {
        for (int n = 0; n < 1000; n++)
            frames += receive(it, &sum);
        end = now();
    } while (end - begin < seconds);
    atomic_store(&it->is_over, 1);
    waitpid(child, NULL, 0);
    double rate = frames / (end - begin);
    printf("%llu frames received, %.0f a second\n", (unsigned long long)frames, rate);
    return sum == 0;
}
