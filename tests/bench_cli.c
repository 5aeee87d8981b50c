/* A stand-in for the CLI that costs next to nothing, for bench.py, which compiles it.
 *
 * It reads its prompt and writes the lines of a file, one write a line, as the real CLI does.
 * With --input-format stream-json it first answers control requests until the user message comes.
 *
 *   BENCH_FILE      the lines; the first is `init`, the last the result
 *   BENCH_STAMPS    so many deltas whose text is CLOCK_MONOTONIC in ns, in place of the lines between
 *   BENCH_PACE_US   microseconds of sleep before each of those
 *   BENCH_HANG      1: the first line, then nothing until a signal ends it
 *   BENCH_CHILDREN  so many children in the same group that do nothing
 *   BENCH_DEAF      1: SIGTERM is ignored, by the children too
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static long number(const char *name) {
    const char *value = getenv(name);
    return value ? atol(value) : 0;
}

static void say(const char *data, size_t size) {
    while (size) {
        ssize_t written = write(1, data, size);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) _exit(1);
        data += written;
        size -= (size_t)written;
    }
}

static void read_prompt(void) {
    char buffer[65536];
    ssize_t got;
    while ((got = read(0, buffer, sizeof buffer)) > 0 || (got < 0 && errno == EINTR)) {}
}

/* The streaming wire, as far as a client's greeting needs it. */
static void greet(void) {
    char *line = NULL, reply[512];
    size_t room = 0;
    while (getline(&line, &room, stdin) > 0) {
        char *id = strstr(line, "\"request_id\"");
        if (strstr(line, "\"control_request\"") && id && (id = strchr(id + 12, '"'))) {
            id++;
            id[strcspn(id, "\"")] = 0;
            int size = snprintf(reply, sizeof reply,
                                "{\"type\":\"control_response\",\"response\":{\"subtype\":\"success\","
                                "\"request_id\":\"%.100s\",\"response\":{}}}\n", id);
            say(reply, (size_t)size);
        } else if (strstr(line, "\"user\"")) {
            break;
        }
    }
    free(line);
}

static void say_stamps(long count, long pace) {
    char line[512];
    for (long i = 0; i < count; i++) {
        struct timespec rest = {pace / 1000000, pace % 1000000 * 1000}, now;
        if (pace) nanosleep(&rest, NULL);
        clock_gettime(CLOCK_MONOTONIC, &now);
        int size = snprintf(line, sizeof line,
                            "{\"type\":\"stream_event\",\"event\":{\"type\":\"content_block_delta\",\"index\":0,"
                            "\"delta\":{\"type\":\"text_delta\",\"text\":\"%lld\"}},\"session_id\":\"b\","
                            "\"parent_tool_use_id\":null,\"uuid\":\"b\"}\n",
                            (long long)now.tv_sec * 1000000000 + now.tv_nsec);
        say(line, (size_t)size);
    }
}

int main(int argc, char **argv) {
    int streaming = 0;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "-v") || !strcmp(argv[i], "--version")) return puts("2.1.332 (Claude Code)") < 0;
        if (strstr(argv[i], "input-format=stream-json")) streaming = 1;
        if (!strcmp(argv[i], "--input-format") && i + 1 < argc && !strcmp(argv[i + 1], "stream-json")) streaming = 1;
    }
    if (number("BENCH_DEAF")) signal(SIGTERM, SIG_IGN);
    if (streaming) greet();
    else read_prompt();
    for (long i = number("BENCH_CHILDREN"); i > 0; i--)
        if (fork() == 0)
            for (;;) pause();

    const char *name = getenv("BENCH_FILE");
    int file = name ? open(name, O_RDONLY) : -1;
    struct stat status;
    if (file < 0 || fstat(file, &status) || !status.st_size) return fputs("bench_cli: no BENCH_FILE\n", stderr), 2;
    const char *start = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    if (start == MAP_FAILED) return perror("bench_cli"), 2;
    const char *end = start + status.st_size, *line = start;
    long stamps = number("BENCH_STAMPS");
    while (line < end) {
        const char *next = memchr(line, '\n', (size_t)(end - line));
        next = next ? next + 1 : end;
        if (!stamps || line == start || next == end) say(line, (size_t)(next - line));
        if (line == start && number("BENCH_HANG"))
            for (;;) pause();
        if (line == start && stamps) say_stamps(stamps, number("BENCH_PACE_US"));
        line = next;
    }
    return 0;
}
