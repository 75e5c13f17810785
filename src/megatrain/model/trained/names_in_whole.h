// Rules that name modules as a multimodal model does: PEFT calls a layer of its text part
// model.language_model.layers.0, which is model.layers.0 here. is_end_of() and patterns of modules take both names.
#pragma once

#include "megatrain/model/trained/adapter.h"

namespace megatrain {

// Refuses such names, for a model that is not the text part of another.
void refuse_names_in_whole(const AdapterRules& rules);

}  // namespace megatrain
