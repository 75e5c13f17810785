// megatrain as a library: open a configuration, train, evaluate, generate, export. examples/cpp/train.cc shows how.
#pragma once

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/base/version.h"
#include "megatrain/config/config.h"
#include "megatrain/data/open_data.h"
#include "megatrain/generate/answer.h"
#include "megatrain/run/export_run.h"
#include "megatrain/run/run.h"
#include "megatrain/train/model_loss.h"
#include "megatrain/train/optim_settings.h"
#include "megatrain/train/session.h"
#include "megatrain/train/state_files.h"
