// Adapters as a PEFT directory: adapter_config.json and adapter_model.safetensors, which PEFT and vLLM load.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "megatrain/hub/text_names.h"
#include "megatrain/model/layers/model_config.h"
#include "megatrain/model/trained/adapter.h"
#include "megatrain/train/state_files.h"

namespace megatrain {

inline constexpr const char* kPeftPrefix = "base_model.model.";  // of a tensor's name in a PEFT directory

// What PEFT calls the tensors of adapters, and those of the base that are trained beside them, by their names in the
// base's files. The bias of a module with an adapter is that of its base layer.
class PeftNames {
 public:
  // `names`: of modules, kModuleNames for the text part of a multimodal model.
  PeftNames(const std::vector<const LayerLayout*>& layouts, TextNames names)
      : adapted_(adapted_modules(layouts)), names_(std::move(names)) {}
  std::string operator()(const std::string& name) const;

 private:
  std::set<std::string> adapted_;
  TextNames names_;
};

// How PEFT names the modules of a model.
TextNames module_names(const ModelConfig& model);

// adapter_config.json. `base` is the name or directory of the model that the adapters belong to; empty: it has none.
// For a multimodal model it names modules of the text part alone, in full, as other parts have modules of equal names.
std::string adapter_config(const AdapterRules& rules, const std::string& base,
                           const std::vector<const LayerLayout*>& layouts, const TextNames& names);

// Writes what is trained, in fp32, with `config` as adapter_config.json. `texts` as for export_model(), without a
// config.json. Returns the hash of the contents, equal to
// hash_directory().
StateHash export_adapter(const std::string& directory, const ExportTexts& texts, const std::string& config,
                         const std::vector<LayerRecord>& records, const TextNames& names, int threads);

// Reads headers alone. Throws Error(bad_input) as load_adapter() does, but not for values.
void check_adapter(const std::string& directory, const AdapterRules& rules, const std::vector<LayerLayout>& layouts);

// All of a PEFT directory's tensors by our names, for a model of these layouts. Throws as load_adapter() does.
using AdapterValues = std::map<std::string, std::vector<float>>;
AdapterValues read_adapter(const std::string& directory, const AdapterRules& rules,
                           const std::vector<LayerLayout>& layouts);

// Fills adapters, and modules that are trained whole, from a PEFT directory. Throws Error(bad_input) if a tensor is
// missing, has another shape, is not finite, or belongs to no module of the records.
void load_adapter(const std::string& directory, const AdapterRules& rules, std::vector<LayerRecord>& records,
                  int threads);

}  // namespace megatrain
