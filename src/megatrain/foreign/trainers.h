// The supported trainers, each in its own file.
#pragma once

#include "megatrain/foreign/trainer.h"

namespace megatrain {

const ForeignTrainer& llamafactory();
const ForeignTrainer& llamafactory_v1();
const ForeignTrainer& axolotl();

}  // namespace megatrain
