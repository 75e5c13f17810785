// The trainers whose files are read, each in a file of its own.
#pragma once

#include "megatrain/foreign/trainer.h"

namespace megatrain {

const ForeignTrainer& llamafactory();
const ForeignTrainer& llamafactory_v1();
const ForeignTrainer& axolotl();

}  // namespace megatrain
