// A whole model through ggml's host side of Hexagon: greedy text, compared with that of ggml's CPU backend.
//
//   greedy MODEL DEVICE TOKENS PROMPT
//
// The CPU writes TOKENS tokens. DEVICE then reads the same prompt in one batch and the same tokens one at a
// time, so that an early difference does not hide later ones. Lines for a program to read:
//
//   @token PLACE CPU DEVICE GAP NMSE NOISE   what each would choose after PLACE tokens of text, by how much
//                                            the CPU's logit of its own choice is above that of DEVICE's,
//                                            and the mean square error of all logits: normalized, and as a
//                                            root
//   @greedy ok                               the end was reached
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "ggml-backend.h"
#include "llama.h"

namespace {
[[noreturn]] void fail(const char *what) {
    printf("\n@greedy failed: %s\n", what);
    fflush(stdout);
    _Exit(1);
}

llama_token best(const std::vector<float> &logits) {
    return llama_token(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// A model on one device, or on the CPU alone.
struct Runner {
    lm_ggml_backend_dev_t devices[2] = {nullptr, nullptr};
    llama_model *model = nullptr;
    llama_context *context = nullptr;

    Runner(const char *path, const char *device) {
        if (device && !(devices[0] = lm_ggml_backend_dev_by_name(device))) fail("there is no such device");
        llama_model_params load = llama_model_default_params();
        load.devices = devices;
        load.n_gpu_layers = device ? 999 : 0;
        if (!(model = llama_model_load_from_file(path, load))) fail("the model cannot be loaded");
        llama_context_params options = llama_context_default_params();
        options.n_ctx = 256;
        options.n_batch = options.n_ubatch = 64;
        options.n_threads = options.n_threads_batch = 1;
        options.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
        if (!(context = llama_init_from_model(model, options))) fail("there is no context");
    }
    ~Runner() {
        llama_free(context);
        llama_model_free(model);
    }

    std::vector<llama_token> tokens(const char *text) const {
        std::vector<llama_token> ids(strlen(text) + 8);
        const llama_vocab *vocab = llama_model_get_vocab(model);
        int32_t n = llama_tokenize(vocab, text, int32_t(strlen(text)), ids.data(), int32_t(ids.size()), true, true);
        if (n <= 0) fail("the prompt has no tokens");
        ids.resize(size_t(n));
        return ids;
    }

    // The logits after these tokens.
    std::vector<float> read(std::vector<llama_token> ids) {
        if (llama_decode(context, llama_batch_get_one(ids.data(), int32_t(ids.size())))) fail("a step failed");
        const float *logits = llama_get_logits_ith(context, -1);
        return {logits, logits + llama_vocab_n_tokens(llama_model_get_vocab(model))};
    }
};

struct Error {
    double nmse, noise;
};

Error compare(const std::vector<float> &want, const std::vector<float> &got) {
    double difference = 0, all = 0;
    for (size_t i = 0; i < want.size(); i++) {
        difference += (double(want[i]) - got[i]) * (double(want[i]) - got[i]);
        all += double(want[i]) * want[i];
    }
    return {difference / all, std::sqrt(difference / double(want.size()))};
}
} // namespace

int main(int argc, char **argv) {
    if (argc != 5) fail("usage: greedy MODEL DEVICE TOKENS PROMPT");
    llama_backend_init();
    const int n = atoi(argv[3]);
    std::vector<llama_token> prompt, text;
    std::vector<std::vector<float>> wanted;
    {
        Runner cpu(argv[1], nullptr);
        prompt = cpu.tokens(argv[4]);
        wanted.push_back(cpu.read(prompt));
        while (int(text.size()) < n) {
            text.push_back(best(wanted.back()));
            wanted.push_back(cpu.read({text.back()}));
        }
    }
    Runner device(argv[1], argv[2]);
    for (int place = 0; place < n; place++) {
        const std::vector<float> got = place ? device.read({text[size_t(place) - 1]}) : device.read(prompt);
        const std::vector<float> &want = wanted[size_t(place)];
        const llama_token choice = best(got);
        const float gap = want[size_t(text[size_t(place)])] - want[size_t(choice)];
        const Error error = compare(want, got);
        printf("\n@token %d %d %d %.5f %.3e %.5f\n", place, text[size_t(place)], choice, gap, error.nmse, error.noise);
        fflush(stdout);
    }
    printf("\n@greedy ok\n");
    fflush(stdout);
    // What is left is the emulator's, which ends with this process.
    _Exit(0);
}
