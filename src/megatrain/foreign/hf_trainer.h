// Keys and rules of the Hugging Face trainer (transformers' TrainingArguments), which other trainers hand on to it.
#pragma once

#include <span>
#include <string>

#include "megatrain/foreign/reader.h"

namespace megatrain {

// Its keys that ask for nothing here.
std::span<const ForeignIdle> hf_idle_keys();

// The name of an optimizer, in `key`. 8-bit ones become state.moments: int8.
void hf_optimizer(ForeignReader& reader, const char* key);

// The name of a schedule and its arguments. `standard` is the trainer's default; empty: none.
std::string hf_schedule_name(const ForeignReader& reader, const char* key, const char* standard);
void hf_schedule(ForeignReader& reader, const char* key, const char* standard, const char* rate);

// "steps", "epoch" or "no"; another one is refused.
std::string hf_strategy(const ForeignReader& reader, const char* name, const char* standard);
// Steps, or a part of the run below 1, as checkpoint.every and eval.every read it.
std::string hf_every(const char* name, const Foreign& value);

// max_steps above 0 says how long the run is, whatever `epochs`, their key for these, says; false: it does not.
bool hf_steps(ForeignReader& reader, const char* epochs);
// What `epochs` says, or in a file of theirs `standard` where nothing says how long the run is; nullptr: none is added.
Translation* hf_epochs(ForeignReader& reader, const char* epochs, const char* standard);

// warmup_ratio, a part of the run from 0 to below 1; `standard` where it is not given.
double hf_warmup_ratio(const ForeignReader& reader, double standard);

// Refuses 1 as the size of an evaluation set: a part of the samples is below 1, and a number of them above 1 there.
void hf_held_out(const ForeignReader& reader, const char* key);
// Their default of a seed that is not given.
void hf_seed(ForeignReader& reader);

void hf_resume(ForeignReader& reader);

}  // namespace megatrain
