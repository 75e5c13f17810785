#include "megatrain/foreign/trainer.h"

#include <algorithm>
#include <cstring>

#include "megatrain/base/among.h"
#include "megatrain/base/nearest_name.h"
#include "megatrain/foreign/methods.h"
#include "megatrain/foreign/trainers.h"

namespace megatrain {
namespace {

bool is_renamed(const ForeignTrainer& trainer, const std::string& name) {
  for (const auto& list : trainer.renamed)
    if (std::any_of(list.begin(), list.end(), [&](const RenamedKey& each) { return name == each.name; })) return true;
  return false;
}

}  // namespace

std::span<const ForeignTrainer* const> foreign_trainers() {
  static const ForeignTrainer* const kTrainers[] = {&axolotl(), &llamafactory_v1(), &llamafactory()};
  return kTrainers;
}

const ForeignTrainer& default_foreign_trainer() { return llamafactory(); }

const ForeignTrainer* trainer_of(const std::set<std::string>& keys) {
  for (const ForeignTrainer* const trainer : foreign_trainers())
    if (trainer->is_file(keys)) return trainer;
  return nullptr;
}

bool is_key_of(const ForeignTrainer& trainer, const std::string& name) {
  return is_renamed(trainer, name) || among(trainer.ruled, name) || find_idle(trainer, name) ||
         is_method_key(trainer, name);
}

std::string foreign_key_name(const std::string& name) { return name == "optim_type" ? "optim" : name; }

std::string known_foreign_name(const std::string& written) { return written == "optim" ? "optim_type" : written; }

const ForeignTrainer* trainer_with_key(const std::string& name) {
  if (is_key_of(default_foreign_trainer(), name)) return &default_foreign_trainer();
  for (const ForeignTrainer* const each : foreign_trainers())
    if (is_key_of(*each, name)) return each;
  return nullptr;
}

bool takes_mapping(const ForeignTrainer& trainer, const std::string& name) {
  return among(trainer.nested, name) || (!is_renamed(trainer, name) && !among(trainer.ruled, name));
}

bool takes_list(const ForeignTrainer& trainer, const std::string& name) {
  return among(trainer.lists, name) || takes_mapping(trainer, name);
}

std::string nearest_foreign_key(const ForeignTrainer& trainer, const std::string& unknown) {
  NearestName nearest(unknown);
  for (const char* const name : trainer.ruled) nearest.consider(foreign_key_name(name));
  for (const auto& list : trainer.renamed)
    for (const RenamedKey& each : list) nearest.consider(each.name);
  for (const auto& list : trainer.idle)
    for (const ForeignIdle& each : list)
      if (!std::strchr(each.name, '*')) nearest.consider(each.name);
  return nearest.found();
}

}  // namespace megatrain
