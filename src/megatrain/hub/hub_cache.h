// Finds models and datasets by their Hugging Face hub name in the cache where its own tools put downloads.
//
// Names are found in any case, as on the hub.
//
//   CACHE/models--Org--Name/refs/main            holds a commit
//   CACHE/models--Org--Name/snapshots/COMMIT/    the model directory: links into ../../blobs
//
// CACHE is where huggingface_hub looks for it: $HF_HUB_CACHE, else $HF_HOME/hub, else huggingface/hub beside
// user_cache_directory(). Nothing is ever downloaded.
#pragma once

#include <string>

namespace megatrain {

std::string hub_cache_directory();

// "Org/Name": two names of letters, digits, '.', '_' and '-'.
bool is_hub_name(const std::string& path);

// What a caller needs of a model: its config.json, its weights too, or a PEFT directory with its adapters.
enum class ModelParts { config, weights, adapter };

// Whether the cache has something of a model of this name.
bool in_hub_cache(const std::string& name);

// The model's directory: `path` itself if it exists or is not a hub name, otherwise its snapshot in the cache. Throws
// Error(bad_input) when the cache lacks the model or some of the `needed` parts; the message has the command that
// downloads it.
std::string find_model(const std::string& path, ModelParts needed);

// The snapshot of a dataset in the cache (datasets--Org--Name, otherwise as for models). Error(bad_input), with the
// command that downloads it, if there is none.
std::string find_hub_dataset(const std::string& name);

// The same for a caller that takes adapters as well as models.
std::string find_model_or_adapter(const std::string& path, ModelParts needed);
bool is_adapter_directory(const std::string& path);  // has an adapter_config.json

}  // namespace megatrain
