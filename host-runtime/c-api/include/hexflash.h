// hexflash: LLM inference on the Qualcomm Hexagon NPU, for C and for all languages that call C.
//
// Functions that can fail return a `hexflash_status`, and leave code and text of the failure for
// `hexflash_last_error_code` and `hexflash_last_error_text` of the same thread. A missing (NULL) argument is
// such a failure, unless the function says otherwise. What a function gives by a pointer to a pointer is NULL
// after a failure.
//
// Texts are UTF-8 and end with a zero byte. The caller keeps what it passes; it is copied before the function
// returns. Any function may be called on any thread, and several threads may use a model and a conversation
// at the same time. A generation is used by one call at a time: another one fails meanwhile, but for
// `hexflash_cancel`.
//
// This file is made of the sources in `host-runtime/c-api/src`; `docs/c-library.md` begins with an example.

#ifndef HEXFLASH_H
#define HEXFLASH_H

#include <stddef.h>
#include <stdint.h>

// Version of the functions and of their arguments. It changes when a program has to be compiled again.
#define HEXFLASH_ABI_VERSION 1

// No lines.
#define HEXFLASH_LOG_OFF 0

// Failures that no call returns.
#define HEXFLASH_LOG_ERROR 1

// Warnings for users, such as of a cache of weights that cannot be written.
#define HEXFLASH_LOG_WARN 2

// Events that come once for a model or a device.
#define HEXFLASH_LOG_INFO 3

// Details that help to find a fault.
#define HEXFLASH_LOG_DEBUG 4

// A conversation with a model.
typedef struct hexflash_conversation hexflash_conversation;

// A text under way, or one that has ended.
typedef struct hexflash_generation hexflash_generation;

// A model on a device. What was made with it keeps it alive, so that it may be closed at any time.
typedef struct hexflash_model hexflash_model;

// How a call went: zero or more is success, less is a failure.
typedef int32_t hexflash_status;

// Function that gets each piece of a text: `length` bytes and a zero byte, good until it returns. It ends
// the text with any other result than 0. It may call `hexflash_cancel`, and nothing else with the same
// generation. It must return: no exception, and no `longjmp`.
typedef int (*hexflash_on_text)(const char *text, size_t length, void *user_data);

// Function that gets a line of the log, with one of `HEXFLASH_LOG_ERROR` to `HEXFLASH_LOG_DEBUG`. The line
// ends with a zero byte, without a line break, and is good until the function returns. It comes on any
// thread, one line at a time. The function must not call this library.
typedef void (*hexflash_on_line)(int level, const char *line, void *user_data);

// Success.
#define HEXFLASH_OK 0

// Success: the text has ended, and there is no further piece.
#define HEXFLASH_END 1

// Files, settings or arguments are at fault; the same call will fail again.
#define HEXFLASH_ERROR_INPUT -1

// The machine, the device or hexflash itself failed.
#define HEXFLASH_ERROR_SYSTEM -2

// Nothing failed: the work was cancelled, and there is no result.
#define HEXFLASH_ERROR_CANCELLED -3

// A bug in hexflash: the call was given up. Handles that it had can only be freed from then on.
#define HEXFLASH_ERROR_BUG -4

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The code of the last failure on this thread; `HEXFLASH_OK` if there was none. A success does not change
// it.
hexflash_status hexflash_last_error_code(void);

// The text of the last failure on this thread, in one line with a cause and a remedy; empty if there was
// none. It belongs to the library, and is good until the next failure on this thread or the thread's end.
const char *hexflash_last_error_text(void);

// The version of the functions that the library has, to be compared with `HEXFLASH_ABI_VERSION`.
uint32_t hexflash_abi_version(void);

// The version of hexflash, such as "0.1.0". The text belongs to the library, and is good for ever.
const char *hexflash_version(void);

// Opens the model of a GGUF file; of a sharded one, the first. This may take minutes the first time that
// weights are repacked. The caller closes the model with `hexflash_close`.
//
// `abi` is `HEXFLASH_ABI_VERSION`: a library with another version refuses to work. `options` may be NULL; it
// is a JSON object with any of these keys:
//
// * `device` ("inproc", "qemu", "htp"), `threads`, `sessions`: where it runs;
// * `context` (tokens; 0 for as many as the model was trained for), `batch`, `sequences` (texts that can be
//   under way at once), `snapshots_mib`, `cache_type_k` and `cache_type_v` ("f16", "q8_0", "q4_r"): what it
//   has room for;
// * `weights_cache_dir`, `no_weights_cache`: where repacked weights are kept, if not beside the model;
// * `draft` (a file), `drafts` ("none", "own", "ngrams", "best"), `draft_max`: who drafts, which never
//   changes a text;
// * `temperature`, `top_k`, `top_p`, `min_p`, `repeat_penalty`, `repeat_last_n`, `presence_penalty`,
//   `frequency_penalty`, `seed`: what is sampled otherwise than the model recommends.
//
// # Safety
// 1. Each text is NULL or ends with a zero byte, and nobody changes it during the call.
// 2. `model` is NULL or leads to a pointer that may be written.
hexflash_status hexflash_open(uint32_t abi, const char *path, const char *options, hexflash_model **model);

// Closes a model, which no other call may use any more. Texts and conversations of it live on, and the
// memory is free when the last of them is. NULL is allowed.
void hexflash_close(hexflash_model *model);

// Gives what a model is, as JSON: `device`, `context` (tokens of a sequence), `sequences`, `memory` (bytes),
// `has_chat_template`, and `warnings` of its opening. The caller frees `json` with `hexflash_free_text`.
hexflash_status hexflash_model_info(const hexflash_model *model, char **json);

// Begins a text after `prompt`, of which nothing is computed yet: `hexflash_next` gives its pieces. The
// prompt's beginning that a context still has is not computed again. The caller frees the generation with
// `hexflash_free_generation`; until its end it has a sequence of the model for itself.
//
// `request` may be NULL; it is a JSON object with any of these keys: `max_tokens` (without it, until the
// context is full), `stop` (a list of texts), `ignore_eos`, and the keys of sampling that `hexflash_open`
// takes.
//
// # Safety
// 1. Each text is NULL or ends with a zero byte, and nobody changes it during the call.
// 2. `model` is NULL or a model that is open; `generation` is NULL or leads to a pointer that may be
//    written.
hexflash_status hexflash_generate(const hexflash_model *model,
                                  const char *prompt,
                                  const char *request,
                                  hexflash_generation **generation);

// Begins the model's answer to messages, as `hexflash_generate` does, in the format of a chat template.
//
// `messages` is a JSON list as in requests to OpenAI's interface, `role` and `content` each; further keys,
// such as `tool_calls`, go to the template as they are. An object with such a list as `messages` is the
// same. `request` may have, besides the keys of `hexflash_generate`: `chat_template` (the source of one, or
// "chatml"; without it, the model's own), `tools` (a list of objects) and `chat_template_kwargs` (such as
// `{"enable_thinking": false}`). What the model calls is not looked for: calls are part of the text, as the
// model writes them.
//
// # Safety
// 1. Each text is NULL or ends with a zero byte, and nobody changes it during the call.
// 2. `model` is NULL or a model that is open; `generation` is NULL or leads to a pointer that may be
//    written.
hexflash_status hexflash_chat(const hexflash_model *model,
                              const char *messages,
                              const char *request,
                              hexflash_generation **generation);

// Waits for the next piece of a text: `HEXFLASH_OK` with a piece, `HEXFLASH_END` without one at the end.
//
// `text` then leads to `length` bytes and a zero byte, which belong to the generation and are good until the
// next call with it. A piece may have zero bytes in itself, and is never empty; together they are the text.
// `length` may be NULL. A text that fails has ended: further calls give `HEXFLASH_END`. Any thread may call,
// one at a time.
hexflash_status hexflash_next(const hexflash_generation *generation, const char **text, size_t *length);

// Writes a text to its end, and hands each piece to `on_text` on this thread, with `user_data`, which may be
// NULL. `HEXFLASH_END` when the text has ended by itself, by `hexflash_cancel` or by the function's result;
// the figures say which.
hexflash_status hexflash_run(const hexflash_generation *generation,
                             hexflash_on_text on_text,
                             void *user_data);

// Ends a text after the step under way. It may be called on any thread, also while another one waits for a
// piece, and in a handler of signals, but not once the generation is being freed. NULL is allowed.
void hexflash_cancel(const hexflash_generation *generation);

// Gives the text so far with its figures, as JSON: `tokens` (their ids), `text`, `finish_reason` (null until
// the end, then "eog", "length", "stop", "context" or "interrupted"), `stop` (the stop text that ended it)
// and `stats` (counts, seconds, and what drafts were worth). The caller frees `json` with
// `hexflash_free_text`.
hexflash_status hexflash_figures(const hexflash_generation *generation, char **json);

// Frees a text. One that has not ended is ended first, after the step under way. No other thread may use the
// generation any more. NULL is allowed.
void hexflash_free_generation(hexflash_generation *generation);

// Begins a conversation without messages. `options` may be NULL; it is a JSON object with any of the keys
// `chat_template`, `tools` and `chat_template_kwargs` of `hexflash_chat`. The caller frees the conversation
// with `hexflash_free_conversation`.
//
// # Safety
// 1. `options` is NULL or ends with a zero byte, and nobody changes it during the call.
// 2. `model` is NULL or a model that is open; `conversation` is NULL or leads to a pointer that may be
//    written.
hexflash_status hexflash_conversation_new(const hexflash_model *model,
                                          const char *options,
                                          hexflash_conversation **conversation);

// Adds a message without asking for an answer, such as one of the role "system".
//
// # Safety
// 1. Each text is NULL or ends with a zero byte, and nobody changes it during the call.
// 2. `conversation` is NULL or one that is not freed.
hexflash_status hexflash_conversation_add(const hexflash_conversation *conversation,
                                          const char *role,
                                          const char *content);

// Says something as the user, and begins the answer, which becomes part of the conversation when its text
// has ended or is freed. `request` is that of `hexflash_generate`. The caller frees the generation with
// `hexflash_free_generation`, before or after the conversation.
//
// # Safety
// 1. Each text is NULL or ends with a zero byte, and nobody changes it during the call.
// 2. `conversation` is NULL or one that is not freed; `generation` is NULL or leads to a pointer that may be
//    written.
hexflash_status hexflash_conversation_say(const hexflash_conversation *conversation,
                                          const char *content,
                                          const char *request,
                                          hexflash_generation **generation);

// Takes the last message of the user back, and what follows it. `messages` gets how many messages that were:
// 0 where nothing was said. It may be NULL.
hexflash_status hexflash_conversation_undo(const hexflash_conversation *conversation, size_t *messages);

// Gives the messages so far as JSON, an object with a list `messages`: to be saved, and the form of the
// files of `hexflash chat`. An answer under way is not among them. The caller frees `json` with
// `hexflash_free_text`.
hexflash_status hexflash_conversation_messages(const hexflash_conversation *conversation, char **json);

// Goes on with other messages, in any form that `hexflash_chat` takes; after a failure with those that were
// there.
//
// # Safety
// 1. `messages` is NULL or ends with a zero byte, and nobody changes it during the call.
// 2. `conversation` is NULL or one that is not freed.
hexflash_status hexflash_conversation_load(const hexflash_conversation *conversation, const char *messages);

// Frees a conversation, which no other call may use any more. An answer under way goes on without it. NULL
// is allowed.
void hexflash_free_conversation(hexflash_conversation *conversation);

// Says how a model would fit the DSP of a chip, as JSON. Only the beginning of the file is read, and no
// device.
//
// `options` is that of `hexflash_open`, or NULL. `chip` is a version of the DSP ("v73"), the number of a
// chip as Android has it in `Build.SOC_MODEL` ("SM8550"), or NULL for all versions. `json` has `n_ctx`
// (tokens of a context), `weight_bits` (of a weight on average) and `chips`, of which each has `chip` (the
// version), `sessions` (of the DSP; null where the model does not fit any number of them), `needs` (bytes of
// each session), `limits`, and `remedy` (what would make it fit, or do with fewer). A model that hexflash
// does not run is a failure. The caller frees `json` with `hexflash_free_text`.
//
// # Safety
// 1. Each text is NULL or ends with a zero byte, and nobody changes it during the call.
// 2. `json` is NULL or leads to a pointer that may be written.
hexflash_status hexflash_fits(const char *path, const char *options, const char *chip, char **json);

// Sends lines of the log to `on_line`, up to a level from `HEXFLASH_LOG_OFF` to `HEXFLASH_LOG_DEBUG`;
// without this call, there is no log. The last call counts, for the whole process. When it has returned, the
// function before is not called any more. `user_data` may be NULL, and `on_line`, too, with
// `HEXFLASH_LOG_OFF`.
hexflash_status hexflash_set_log(int level, hexflash_on_line on_line, void *user_data);

// Frees a text that a function of this library gave as a `char *`. NULL is allowed.
//
// # Safety
// 1. The text is NULL, or such a text that was not freed yet.
// 2. Nobody uses it any more.
void hexflash_free_text(char *text);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* HEXFLASH_H */
