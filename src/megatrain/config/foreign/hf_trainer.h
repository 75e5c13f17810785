// Keys and rules of the Hugging Face trainer (transformers' TrainingArguments), which other trainers hand on to it.
#pragma once

#include <span>
#include <string>

#include "megatrain/config/foreign/reader.h"

namespace megatrain {

// Its keys that ask for nothing here.
std::span<const ForeignIdle> hf_idle_keys();

inline constexpr const char* kNoAdapters =
    "all weights are trained, and fit on one GPU without adapters: freeze or train_only (patterns over tensor names) "
    "train a part of them";
inline constexpr const char* kOneGpu = "one process trains on one GPU: leave the key out";
inline constexpr const char* kOnlyText =
    "models of text are trained; take one, and datasets without images, video and sound";
inline constexpr const char* kAdamW =
    "the optimizer is AdamW, whose state lives in host memory where the GPU is full: leave the key out";
inline constexpr const char* kCrossEntropy = "the loss is cross-entropy: leave the key out";
inline constexpr const char* kNoPreferences =
    "to go on with the better answers alone, write them as a dataset of conversations";

// The name of an optimizer, in `key`. 8-bit ones become state.moments: int8.
void hf_optimizer(ForeignReader& reader, const char* key);

// The name of a schedule and its arguments. `standard` is the trainer's default; empty: none.
std::string hf_schedule_name(const ForeignReader& reader, const char* key, const char* standard);
void hf_schedule(ForeignReader& reader, const char* key, const char* standard, const char* rate);

// "steps", "epoch" or "no"; another one is refused.
std::string hf_strategy(const ForeignReader& reader, const char* name, const char* standard);
// Steps, or a part of the run below 1, as checkpoint.every and eval.every read it.
std::string hf_every(const char* name, const Foreign& value);

void hf_resume(ForeignReader& reader);

}  // namespace megatrain
