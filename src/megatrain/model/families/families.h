// Every family. A new one gets a line here and one in families.cc.
#pragma once

#include "megatrain/model/family.h"

namespace megatrain {

Family exaone4_family();
Family gemma2_family();
Family gemma3_family();
Family glm_family();
Family glm4_family();
Family glm4_moe_family();
Family glm4_moe_lite_family();
Family deepseek_v3_family();
Family gemma4_family();
Family gemma4_unified_family();
Family gpt_oss_family();
Family granite_family();
Family granite4_family();
Family nemotron_h_family();
Family falcon_h1_family();
Family cohere_family();
Family cohere2_family();
Family minimax_m2_family();
Family lfm2_family();
Family gemma_family();
Family arcee_family();
Family ernie4_5_family();
Family olmoe_family();
Family llama_family();
Family ministral3_family();
Family mistral_family();
Family mistral4_family();
Family mixtral_family();
Family olmo2_family();
Family olmo3_family();
Family phi3_family();
Family qwen2_family();
Family qwen2_moe_family();
Family qwen3_5_family();
Family qwen3_5_moe_family();
Family qwen3_family();
Family qwen3_moe_family();
Family qwen3_next_family();
Family seed_oss_family();
Family smollm3_family();

}  // namespace megatrain
