// What is wrong with the settings of adapters for a model, and what other programs make of them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "megatrain/model/trained/adapter.h"
#include "megatrain/tensor/layout.h"

namespace megatrain {

// Marks what is trained beside the adapters, and freezes the rest. Throws Error(bad_config) for a target, an exclusion,
// a pattern or a module that matches nothing, and for a target that cannot have an adapter; Error(bad_input) if the
// rules are from a file. `tied`: the output matrix is the embedding's table, which then cannot be trained.
void freeze_base(std::vector<LayerLayout>& layouts, const AdapterRules& rules, bool tied);

// Refuses names as a multimodal model has them, for a model that is not the text part of another. PEFT calls a layer of
// the text part model.language_model.layers.0, which is model.layers.0 here. is_end_of() and patterns of modules take
// both names.
void refuse_names_in_whole(const AdapterRules& rules);

// Why PEFT reads these adapters otherwise than they are trained, or not at all; empty: it reads them as they are.
// transformers joins gate and up of all experts into one parameter. If files hold experts one by one, PEFT takes the
// names of their modules for the parameter, in every module of the model, and with one rank and one scale.
// `joins_experts`: Family::peft_joins_experts. `refused`: Family::peft_refuses.
std::string unlike_peft(const AdapterRules& rules, const std::vector<LayerLayout>& layouts, bool joins_experts,
                        std::string_view refused = {});

}  // namespace megatrain
