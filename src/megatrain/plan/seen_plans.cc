#include "megatrain/plan/seen_plans.h"

#include <span>
#include <type_traits>
#include <vector>

#include "megatrain/io/xxh3.h"

namespace megatrain {

namespace {

template <class T>
void add_bytes(Xxh3& hash, std::span<const T> values) {
  static_assert(std::has_unique_object_representations_v<T>, "equal values have equal bytes");
  hash.update(values.data(), values.size_bytes());
}

}  // namespace

bool SeenPlans::add(const Plan& plan) {
  const int64_t rest[] = {plan.experts_per_record, plan.input_every, plan.serial, std::ssize(plan.sweeps)};
  hash_.reset();
  add_bytes(hash_, std::span<const int64_t>(rest));
  add_bytes(hash_, std::span<const int64_t>(plan.sweeps));
  add_bytes(hash_, std::span<const Rings>(&plan.rings, 1));
  add_bytes(hash_, std::span<const RecordPlan>(plan.records));
  std::vector<int64_t> phases;  // copied into integers, since PhasePlan has padding between its fields
  for (const PhasePlan& phase : plan.phases)
    PhasePlan::each_field([&](const char*, auto member) { phases.push_back(static_cast<int64_t>(phase.*member)); });
  add_bytes(hash_, std::span<const int64_t>(phases));
  return hashes_.insert(hash_.digest()).second;
}

}  // namespace megatrain
