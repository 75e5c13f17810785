// Keys and rules of the Hugging Face trainer (transformers' TrainingArguments), which other trainers pass on to it.
#pragma once

#include <initializer_list>
#include <span>
#include <string>

#include "megatrain/foreign/reader.h"

namespace megatrain {

// Its keys that have no effect here.
std::span<const ForeignIdle> hf_idle_keys();

// Translates the optimizer's name in `key`. 8-bit optimizers become state.moments: int8.
void hf_optimizer(ForeignReader& reader, const char* key);

// The name of the schedule and its arguments. `standard` is the trainer's default; empty if it has none.
std::string hf_schedule_name(const ForeignReader& reader, const char* key, const char* standard);
void hf_schedule(ForeignReader& reader, const char* key, const char* standard, const char* rate);

// "steps", "epoch" or "no"; anything else is refused.
std::string hf_strategy(const ForeignReader& reader, const char* name, const char* standard);
// Steps, or below 1 a fraction of the run, in the form that checkpoint.every and eval.every read.
std::string hf_every(const char* name, const Foreign& value);

// If max_steps is above 0 it sets the length of the run, whatever `epochs`, their key for epochs, says. Returns false
// otherwise.
bool hf_steps(ForeignReader& reader, const char* epochs);
// Translates `epochs`. If it is not given in a file of theirs and nothing else sets the length, `standard` applies.
// Returns nullptr if neither is the case.
Translation* hf_epochs(ForeignReader& reader, const char* epochs, const char* standard);

// warmup_ratio, a fraction of the run in [0, 1); `standard` if not given.
double hf_warmup_ratio(const ForeignReader& reader, double standard);

// Refuses 1 as the size of the evaluation set: there, below 1 is a fraction of the samples and above 1 a number of
// them.
void hf_held_out(const ForeignReader& reader, const char* key);
// Sets their default seed if none is given.
void hf_seed(ForeignReader& reader);

void hf_resume(ForeignReader& reader);

// Keys that say how many GPUs take samples of their own. Those of one GPU make a step here, which a warning says.
void hf_replicas(ForeignReader& reader, std::initializer_list<const char*> names);
// Matmuls in fp8 are computed in the format of precision here, which a warning says.
void hf_fp8(ForeignReader& reader);

}  // namespace megatrain
