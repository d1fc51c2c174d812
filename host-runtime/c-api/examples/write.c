// Goes on with a text, piece by piece:
//
//     cargo build --release -p hexflash-c
//     cc -o write host-runtime/c-api/examples/write.c -Ihost-runtime/c-api/include
//         -Ltarget/release -lhexflash_c -Wl,-rpath,$PWD/target/release
//     ./write models/tiny-hybrid-q8_0.gguf "#### pub fn push(&mut self" 64

#include <stdio.h>
#include <stdlib.h>

#include "hexflash.h"

// Says why the last call failed.
static int fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, hexflash_last_error_text());
    return EXIT_FAILURE;
}

static void on_line(int level, const char *line, void *user_data) {
    (void)user_data;
    fprintf(stderr, "[%d] %s\n", level, line);
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: %s MODEL PROMPT [TOKENS]\n", argv[0]);
        return EXIT_FAILURE;
    }
    hexflash_set_log(HEXFLASH_LOG_WARN, on_line, NULL);

    hexflash_model *model;
    const char *options = "{\"context\": 512, \"temperature\": 0}";
    if (hexflash_open(HEXFLASH_ABI_VERSION, argv[1], options, &model) != HEXFLASH_OK) {
        return fail("cannot open the model");
    }

    char request[64];
    snprintf(request, sizeof request, "{\"max_tokens\": %d}", argc > 3 ? atoi(argv[3]) : 64);
    hexflash_generation *generation;
    if (hexflash_generate(model, argv[2], request, &generation) != HEXFLASH_OK) {
        hexflash_close(model);
        return fail("cannot begin a text");
    }

    const char *piece;
    size_t length;
    hexflash_status status;
    while ((status = hexflash_next(generation, &piece, &length)) == HEXFLASH_OK) {
        fwrite(piece, 1, length, stdout);
        fflush(stdout);
    }
    int code = status == HEXFLASH_END ? EXIT_SUCCESS : fail("the text has ended early");

    char *figures;
    if (hexflash_figures(generation, &figures) == HEXFLASH_OK) {
        fprintf(stderr, "\n%s\n", figures);
        hexflash_free_text(figures);
    }
    hexflash_free_generation(generation);
    hexflash_close(model);
    return code;
}
