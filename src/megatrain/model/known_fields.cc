#include "megatrain/model/known_fields.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/model/family.h"
#include "megatrain/model/multimodal.h"

namespace megatrain {
namespace {

using nlohmann::json;

// Read by parse_model_config().
const std::set<std::string> kRead = {
    "architectures",
    "attention_bias",
    "dtype",
    "head_dim",
    "hidden_size",
    "initializer_range",
    "intermediate_size",
    "layer_types",
    "max_position_embeddings",
    "max_window_layers",
    "mlp_bias",
    "model_type",
    "num_attention_heads",
    "num_hidden_layers",
    "num_key_value_heads",
    "original_max_position_embeddings",
    "pad_token_id",
    "quantization_config",
    "rms_norm_eps",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
    "sliding_window",
    "tie_word_embeddings",
    "torch_dtype",
    "use_sliding_window",
    "vocab_size",
};

// Python code that comes with the model. transformers runs it only if the user trusts it; megatrain never does.
constexpr const char* kCode = "auto_map";

struct Only {
  json value;
  bool null;  // null means the same
  const char* what;
};

// Any other value of these fields changes the maths, or would in other model classes.
const std::map<std::string, Only> kOnly = {
    {"activation", {"swiglu", true, "other activations are not supported"}},
    {"add_cross_attention", {false, true, "cross-attention is not supported"}},
    {"attention_dropout", {0.0, true, "dropout is not supported"}},
    {"compression_config", {nullptr, true, "the weights must be stored plainly"}},
    {"hidden_act", {"silu", false, "other activations are not supported"}},
    {"is_causal", {true, false, "a decoder is trained with causal attention"}},
    {"is_encoder_decoder", {false, true, "encoders are not supported"}},
    {"partial_rotary_factor", {1.0, true, "the whole head must be rotated"}},
    {"per_layer_config", {json::object(), true, "all layers must have the same shape"}},
    {"pretraining_tp", {1, true, "matmuls are not split for tensor parallelism"}},
    {"pruned_heads", {json::object(), true, "head pruning is not supported"}},
    {"rope_interleaved", {false, true, "only RoPE that pairs the halves of a head is supported"}},
    {"use_mrope", {false, true, "only RoPE with one axis is supported"}},
};

// None of these fields affects the maths of training, whatever its value. They concern the file and its writer, the
// outputs of a call, classifiers, the implementation of attention, or generation. Older files have the fields of
// generation_config.json here.
const std::set<std::string> kIrrelevant = {
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_attn_implementation_internal",
    "_commit_hash",
    "_experts_implementation",
    "_experts_implementation_internal",
    "_flash_attn_2_enabled",
    "_from_model_config",
    "_name_or_path",
    "assistant_confidence_threshold",
    "assistant_early_exit",
    "assistant_ensemble_weight",
    "assistant_lookbehind",
    "attn_implementation",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "cache_config",
    "cache_implementation",
    "chunk_size_feed_forward",
    "classifier_dropout",
    "compile_config",
    "constraints",
    "continuous_batching_config",
    "cross_attention_hidden_size",
    "decoder_start_token_id",
    "disable_compile",
    "diversity_penalty",
    "do_sample",
    "dola_layers",
    "dual_chunk_attention_config",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "encoder_repetition_penalty",
    "eos_token_id",
    "epsilon_cutoff",
    "eta_cutoff",
    "experts_implementation",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "force_words_ids",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "gradient_checkpointing",
    "guidance_scale",
    "id2label",
    "is_assistant",
    "is_decoder",
    "is_llama_config",
    "label2id",
    "length_penalty",
    "low_memory",
    "max_cache_len",
    "max_length",
    "max_matching_ngram_size",
    "max_new_tokens",
    "max_sequence_length",
    "max_time",
    "min_length",
    "min_new_tokens",
    "min_p",
    "model_max_length",
    "name_or_path",
    "no_repeat_ngram_size",
    "num_assistant_tokens",
    "num_assistant_tokens_schedule",
    "num_beam_groups",
    "num_beams",
    "num_labels",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_logits",
    "output_scores",
    "penalty_alpha",
    "prefill_chunk_size",
    "prefix",
    "problem_type",
    "prompt_lookup_num_tokens",
    "remove_invalid_values",
    "renormalize_logits",
    "repetition_penalty",
    "return_dict",
    "return_dict_in_generate",
    "return_legacy_cache",
    "sep_token_id",
    "sequence_bias",
    "speculation_type",
    "stop_strings",
    "suppress_tokens",
    "target_lookbehind",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tie_encoder_decoder",
    "tie_last_hidden_states",
    "token_healing",
    "tokenizer_class",
    "top_h",
    "top_k",
    "top_p",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "typical_p",
    "unk_token_id",
    "unsloth_fixed",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
    "use_flash_attention_2",
    "use_mtp",
    "watermarking_config",
};

bool holds(const std::vector<std::string>& list, const std::string& key) {
  return std::find(list.begin(), list.end(), key) != list.end();
}

bool is_listed(const std::string& key) {
  return kRead.contains(key) || kIrrelevant.contains(key) || kOnly.contains(key);
}

bool is_of_some_family(const std::string& key) {
  return std::any_of(families().begin(), families().end(), [&](const Family& f) { return holds(f.fields, key); });
}

// The ids in `eos_token_id` (one id or a list) that are outside the vocabulary. transformers also only warns about
// them, since some configs on the Hub have such ids. Ids of another type are refused at generation.
std::vector<std::string> ids_of_no_token(const json& config) {
  std::vector<std::string> ids;
  if (!config.contains("eos_token_id") || !config.contains("vocab_size")) return ids;
  const json& given = config.at("eos_token_id");
  for (const json& id : given.is_array() ? given : json::array({given})) {
    if (id.is_number_integer() && (id < 0 || id >= config.at("vocab_size"))) ids.push_back(id.dump());
  }
  return ids;
}

}  // namespace

void check_known_fields(const ConfigReader& config, const std::vector<std::string>& family_fields) {
  for (const auto& [key, value] : config.object().items()) {
    if (holds(family_fields, key)) continue;
    if (const auto only = kOnly.find(key); only != kOnly.end()) {
      const auto& [supported, null, what] = only->second;
      if (value == supported || (null && value.is_null())) continue;
      fail_input(
          fmt::format("{}: '{}' is {}; megatrain supports only {} here, and training without it would change the "
                      "maths: {}",
                      config.where(), key, value.dump().substr(0, 80), supported.dump(), what));
    }
    if (!is_listed(key) && key != kCode && !value.is_null()) refuse_unknown_field(config, key);
  }
}

bool decides_model(const std::string& key) {
  return kRead.contains(key) || kOnly.contains(key) || is_of_some_family(key);
}

std::vector<std::string> passed_over_fields(const json& config, const std::string& where) {
  if (is_multimodal(config)) {
    const TextPart text = text_part_of(config, where);
    return passed_over_fields(text.config, text.where);
  }
  std::vector<std::string> notes;
  for (const auto& [key, value] : config.items()) {
    if (key == kCode && !value.is_null()) {
      notes.push_back(
          fmt::format("{}: '{}' names code that comes with the model; megatrain does not run it and trains "
                      "the architecture that the file names",
                      where, key));
    } else if (key != kCode && !is_listed(key) && !is_of_some_family(key)) {
      notes.push_back(fmt::format("{}: field '{}' is unknown to megatrain; it is null and is not used", where, key));
    }
  }
  for (const char* key : {"attention_dropout", "residual_dropout"}) {
    if (config.contains(key) && config.at(key).is_number() && config.at(key) != 0)
      notes.push_back(fmt::format("{}: '{}' is {}; megatrain trains without it", where, key, config.at(key).dump()));
  }
  for (const std::string& id : ids_of_no_token(config))
    notes.push_back(
        fmt::format("{}: 'eos_token_id' is {}, not a token id below vocab_size ({}); it is ignored as a stop token",
                    where, id, config.at("vocab_size").dump()));
  return notes;
}

}  // namespace megatrain
