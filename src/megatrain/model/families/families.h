// Every family. A new one gets a line here and one in families.cc.
#pragma once

#include "megatrain/model/family.h"

namespace megatrain {

Family gemma3_family();
Family gemma4_family();
Family gpt_oss_family();
Family granite_family();
Family llama_family();
Family mistral_family();
Family mixtral_family();
Family phi3_family();
Family qwen2_family();
Family qwen3_family();
Family qwen3_moe_family();

}  // namespace megatrain
