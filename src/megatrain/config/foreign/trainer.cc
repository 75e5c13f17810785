#include "megatrain/config/foreign/trainer.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "megatrain/base/edit_distance.h"
#include "megatrain/config/foreign/methods.h"
#include "megatrain/config/foreign/trainers.h"

namespace megatrain {
namespace {

bool among(const std::vector<const char*>& list, const std::string& name) {
  return std::any_of(list.begin(), list.end(), [&](const char* each) { return name == each; });
}

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

bool is_foreign_key(const std::string& name) {
  const auto trainers = foreign_trainers();
  return std::any_of(trainers.begin(), trainers.end(), [&](const auto* each) { return is_key_of(*each, name); });
}

bool takes_mapping(const ForeignTrainer& trainer, const std::string& name) {
  return among(trainer.nested, name) || (!is_renamed(trainer, name) && !among(trainer.ruled, name));
}

bool takes_list(const ForeignTrainer& trainer, const std::string& name) {
  return among(trainer.lists, name) || takes_mapping(trainer, name);
}

std::string nearest_foreign_key(const ForeignTrainer& trainer, const std::string& unknown) {
  std::vector<std::string> names(trainer.ruled.begin(), trainer.ruled.end());
  for (const auto& list : trainer.renamed)
    for (const RenamedKey& each : list) names.push_back(each.name);
  for (const auto& list : trainer.idle)
    for (const ForeignIdle& each : list)
      if (!std::strchr(each.name, '*')) names.push_back(each.name);
  std::string nearest;
  int64_t least = 1 + most_typing_errors(unknown);
  for (const std::string& name : names) {
    const int64_t distance = edit_distance(unknown, name);
    if (distance < least) {
      least = distance;
      nearest = name;
    }
  }
  return nearest;
}

}  // namespace megatrain
