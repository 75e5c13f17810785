// LoRA: what the keys of each trainer become in adapter.* and model.adapter. Both trainers call PEFT, whose settings
// ours are.
#pragma once

#include <string>

#include "megatrain/foreign/reader.h"

namespace megatrain {

inline constexpr const char* kAdapterState = "adapters and their state are fp32";

// Whether a file of theirs trains adapters. LLaMA-Factory's default is LoRA.
bool llamafactory_lora(const ForeignKeys& given);
bool llamafactory_no_lora(const ForeignKeys& given);
bool axolotl_lora(const ForeignKeys& given);
bool axolotl_no_lora(const ForeignKeys& given);

// Throws Error(bad_config) for a given key of LoRA that no rule reads.
void refuse_unread_lora(const ForeignTrainer& trainer, const ForeignKeys& given);
// Throws Error(bad_config) for several adapters, and for a new one over another.
void refuse_several_adapters(const ForeignKeys& given);

void llamafactory_adapter(ForeignReader& reader);
void axolotl_adapter(ForeignReader& reader);

}  // namespace megatrain
