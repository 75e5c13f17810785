// Sentences shared by several trainers: why a key has no effect here, and what to do instead of a method.
#pragma once

namespace megatrain {

// Why a key has no effect.
inline constexpr const char* kPlan = "the plan decides what is recomputed and where state lives";
inline constexpr const char* kFused = "the kernels are always fused";
inline constexpr const char* kAlways = "megatrain does this always";
inline constexpr const char* kTokenising = "tokenising is parallel and cached by itself";
inline constexpr const char* kShuffledWhole = "datasets are tokenised in bounded memory, and shuffled whole";
inline constexpr const char* kOneProcess = "there is one process and one GPU";
inline constexpr const char* kGpus = "that trainer uses several GPUs; here one process trains on one GPU";
inline constexpr const char* kSplit =
    "it splits a step over GPUs, which changes no result; here one GPU computes all of it";
inline constexpr const char* kNotFp8 = "matmuls compute in the format of precision, not in fp8";
inline constexpr const char* kLogged = "every step is logged, to metrics.jsonl and TensorBoard files too";
inline constexpr const char* kMicroBatches = "evaluation runs in the training's micro-batches";
inline constexpr const char* kNoNetwork = "nothing is uploaded or downloaded";
inline constexpr const char* kGeneration = "it is about generating answers, not training";
inline constexpr const char* kModel = "the model's own config.json and tokenizer decide";
inline constexpr const char* kTemplate = "the model's own chat template decides; data.template names another";
inline constexpr const char* kOwnTemplate = "the model's own chat template is used; data.template names another";

// What to do instead of a method.
inline constexpr const char* kPart = "freeze or train_only (patterns over tensor names) train a part of the weights";
inline constexpr const char* kOneGpu = "one process trains on one GPU: leave the key out";
inline constexpr const char* kOnlyText =
    "only text models are trained; use one, with datasets without images, video and sound";
inline constexpr const char* kAdamW =
    "the optimizer is AdamW, whose state lives in host memory where the GPU is full: leave the key out";
inline constexpr const char* kCrossEntropy = "the loss is cross-entropy: leave the key out";

}  // namespace megatrain
