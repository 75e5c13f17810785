// Records that hold only weights, and records whose moments live on disk.
#include "megatrain/store/record.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "megatrain/base/error.h"
#include "megatrain/base/math.h"
#include "megatrain/base/split_master.h"
#include "megatrain/io/scratch_file.h"
#include "tests/support/fixtures.h"

namespace megatrain {
namespace {

const std::vector<float> kValues = {1.0f, 1.00390625f, -3.14159265f, 1e-20f, 0.0f};  // the second lies between two bf16

TEST(Record, WeightsAloneAreWhatTrainingWouldStreamAndReadBackRounded) {
  const auto device = make_cpu_device();
  const LayerLayout layout = make_layout({{.name = "w", .rows = 1, .cols = 5}});
  for (const Tier tier : {Tier::host, Tier::hbm}) {
    LayerRecord full(*device, layout, tier), weights(*device, weights_only({layout}).front(), tier);
    std::vector<float> from_full(5), from_weights(5);
    const TensorSpec &in_full = full.layout().tensors[0], &in_weights = weights.layout().tensors[0];
    full.write_master(in_full, 0, 5, kValues.data());
    weights.write_master(in_weights, 0, 5, kValues.data());
    full.read_master(in_full, 0, 5, from_full.data());
    weights.read_master(in_weights, 0, 5, from_weights.data());
    EXPECT_EQ(from_full, kValues);
    for (size_t i = 0; i < kValues.size(); ++i) {
      EXPECT_EQ(from_weights[i], to_float(master_high(kValues[i])));
      EXPECT_EQ(weights.planes().weight[i].bits, full.planes().weight[i].bits);
    }
  }
}

TEST(Record, WeightsAloneTakeNoOtherMemory) {
  const auto device = make_cpu_device();
  const auto layout = [](DType dtype) {
    return weights_only({make_layout({{.name = "w", .rows = 16, .cols = 128, .dtype = dtype}})}).front();
  };
  const LayerRecord half(*device, layout(DType::bf16), Tier::host);
  EXPECT_EQ(device->host_ledger().bytes(), 16 * 128 * 2);
  const LayerRecord single(*device, layout(DType::f32), Tier::host);
  EXPECT_EQ(device->host_ledger().bytes(), 16 * 128 * 6);
}

// q, k and v are packed and end in the middle of blocks; the table's blocks restart with every row.
LayerLayout some_layout(MomentFormat moments) {
  return make_layout({{.name = "q", .rows = 3, .cols = 100, .operand = 0},
                      {.name = "k", .rows = 1, .cols = 100, .operand = 0, .trainable = false},
                      {.name = "v", .rows = 2, .cols = 100, .operand = 0},
                      {.name = "table", .rows = 4, .cols = 300, .role = TensorRole::embedding}},
                     moments);
}

TEST(Record, MomentsTakeTheBytesOfTheirFormat) {
  for (const auto& [moments, bytes] :
       {std::pair{MomentFormat::fp32, 4}, {MomentFormat::bf16, 2}, {MomentFormat::int8, 1}}) {
    const auto device = make_cpu_device();
    const LayerLayout layout = some_layout(moments);
    const LayerRecord record(*device, layout, Tier::host);
    EXPECT_EQ(layout.state_blocks, 2 + 1 + 4 * 2);
    const int64_t scales = moments == MomentFormat::int8 ? 4 * layout.state_blocks : 0;
    EXPECT_EQ(device->host_ledger().bytes(),
              4 * layout.elements + 2 * round_up(bytes * layout.state_elements + scales, kPlaneAlignment));
  }
}

TEST(Record, AFrozenTensorOfABf16SourceTakesTwoBytesAndItsNeighboursKeepEveryBit) {
  const LayerLayout layout =
      as_in_source({make_layout({{.name = "q", .rows = 3, .cols = 100, .operand = 0},
                                 {.name = "k", .rows = 1, .cols = 128, .operand = 0, .trainable = false},
                                 {.name = "v", .rows = 2, .cols = 100, .operand = 0},
                                 {.name = "o", .rows = 2, .cols = 64, .trainable = false}})},
                   {{"q", DType::bf16}, {"k", DType::bf16}, {"o", DType::f32}})
          .front();
  const auto device = make_cpu_device();
  for (const Tier tier : {Tier::host, Tier::hbm}) {
    LayerRecord record(*device, layout, tier);
    if (tier == Tier::host) {
      EXPECT_EQ(device->host_ledger().bytes(),
                2 * layout.elements + 2 * layout.low_elements + 8 * layout.state_elements);
    }
    const auto values_of = [](const TensorSpec& tensor) {
      std::vector<float> values(static_cast<size_t>(tensor.elements()));
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = (1.0f + static_cast<float>(i) / 777) * static_cast<float>(tensor.name[0]);
        if (tensor.exact) values[i] = to_float(to_bf16(values[i]));
      }
      return values;
    };
    for (const TensorSpec& tensor : record.layout().tensors) {
      const std::vector<float> values = values_of(tensor);
      for (int64_t at = 0; at < tensor.elements(); at += 77)
        record.write_master(tensor, at, std::min<int64_t>(77, tensor.elements() - at), values.data() + at);
    }
    for (const TensorSpec& tensor : record.layout().tensors) {
      std::vector<float> read(static_cast<size_t>(tensor.elements()));
      record.read_master(tensor, 0, tensor.elements(), read.data());
      EXPECT_EQ(read, values_of(tensor)) << tensor.name;
    }
    EXPECT_THROW(record.write_master(record.layout().tensors[1], 0, 1, &kValues[2]), Error);
  }
}

// Values that MXFP4 can represent.
std::vector<float> packable(int64_t count) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(std::ldexp(static_cast<float>(i % 5 - 2), static_cast<int>(i / kMxfp4Block % 9) - 4));
  return values;
}

TEST(Record, APackedRecordTakesTheBytesOfItsPackingAndReadsAsOneThatIsNot) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    const auto tensors = [&] {
      return std::vector{make_layout({{.name = "gate", .rows = 6, .cols = 64, .operand = 0, .dtype = dtype},
                                      {.name = "up", .rows = 2, .cols = 64, .operand = 0, .dtype = dtype},
                                      {.name = "bias", .rows = 1, .cols = 7, .role = TensorRole::bias, .dtype = dtype},
                                      {.name = "down", .rows = 32, .cols = 6, .dtype = dtype}})};
    };
    std::vector<LayerLayout> frozen = tensors();
    for (TensorSpec& tensor : frozen.front().tensors) tensor.trainable = false;
    const SourceType packed(DType::bf16, WeightPacking::mxfp4);
    const TensorTypes types = {{"gate", packed}, {"up", packed}, {"bias", DType::bf16}, {"down", packed}};
    const LayerLayout layout = as_in_source(frozen, types).front(), plain = weights_only(tensors()).front();
    ASSERT_TRUE(layout.packed());
    EXPECT_FALSE(as_in_source(tensors(), types).front().packed()) << "what is trained is not packed";
    EXPECT_EQ(layout.stored_bytes(), 4 * kPackedAlignment);
    TemporaryDirectory directory;
    const auto device = make_cpu_device();
    ScratchFile file({.directory = directory.path()}, {layout.stored_bytes()});
    for (const auto& [tier, disk] : {std::pair{Tier::host, DiskPlanes{}},
                                     {Tier::hbm, DiskPlanes{}},
                                     {Tier::host, DiskPlanes{.file = &file, .weights = 0}}}) {
      LayerRecord record(*device, layout, tier, disk), other(*device, plain, Tier::host);
      for (size_t t = 0; t < layout.tensors.size(); ++t) {
        const int64_t count = layout.tensors[t].elements();
        const std::vector<float> values = packable(count);
        EXPECT_TRUE(record.holds(layout.tensors[t], 0, count, values.data()));
        record.write_master(layout.tensors[t], 0, count, values.data());
        other.write_master(plain.tensors[t], 0, count, values.data());
        std::vector<float> read(values.size());
        record.read_master(layout.tensors[t], 0, count, read.data());
        EXPECT_EQ(read, values) << layout.tensors[t].name;
      }
      std::vector<std::byte> one(static_cast<size_t>(record.weight_bytes())), two(one.size());
      record.read_weights(0, record.weight_bytes(), one.data());
      other.read_weights(0, other.weight_bytes(), two.data());
      EXPECT_EQ(one, two);
      std::vector<float> wrong = packable(32);
      wrong[3] = 1.0f / 3;
      EXPECT_FALSE(record.holds(layout.tensors[0], 0, 32, wrong.data()));
      EXPECT_THROW(record.write_master(layout.tensors[0], 0, 32, wrong.data()), Error);
    }
  }
}

TEST(Record, CodesAndScalesReadBackAndDecodeByTheirOwnBlocks) {
  const auto device = make_cpu_device();
  for (const Tier tier : {Tier::host, Tier::hbm}) {
    LayerRecord record(*device, some_layout(MomentFormat::int8), tier);
    for (const TensorSpec& tensor : record.layout().tensors) {
      if (!tensor.trainable) continue;
      for (const auto moment : {LayerRecord::Moment::first, LayerRecord::Moment::second}) {
        std::vector<uint8_t> codes(static_cast<size_t>(tensor.elements()),
                                   moment == LayerRecord::Moment::first ? 127 : 255);
        std::vector<float> scales(static_cast<size_t>(tensor.blocks()));
        for (size_t i = 0; i < scales.size(); ++i) scales[i] = static_cast<float>(i + 1);
        record.write_codes(moment, tensor, 0, tensor.elements(), codes.data());
        record.write_scales(moment, tensor, 0, tensor.blocks(), scales.data());
      }
    }
    for (const TensorSpec& tensor : record.layout().tensors) {
      if (!tensor.trainable) continue;
      for (int64_t begin : {int64_t{0}, int64_t{50}, int64_t{199}}) {
        std::vector<float> values(static_cast<size_t>(tensor.elements() - begin));
        record.read_moment(LayerRecord::Moment::second, tensor, begin, std::ssize(values), values.data());
        for (int64_t i = 0; i < std::ssize(values); ++i) {
          const int64_t at = begin + i;
          const int64_t block = tensor.name == "table" ? at / 300 * 2 + at % 300 / 256 : at / 256;
          ASSERT_EQ(values[static_cast<size_t>(i)], static_cast<float>(block + 1)) << tensor.name << " " << at;
        }
      }
    }
  }
}

// Two records are large, one per tier. The rest are small, with int8 moments whose scales end at any offset.
TEST(Records, SmallPlanesShareMemoryAndNoneTouchesItsNeighbour) {
  const auto device = make_cpu_device();
  std::vector<LayerLayout> layouts(40, some_layout(MomentFormat::int8));
  std::vector<Tier> tiers(layouts.size(), Tier::host);
  for (size_t i = 0; i < 10; ++i) tiers[i] = Tier::hbm;
  for (const size_t large : {size_t{3}, size_t{20}})
    layouts[large] = make_layout({{.name = "w", .rows = 1024, .cols = 1100}}, MomentFormat::fp32);
  {
    std::vector<LayerRecord> records = make_records(*device, layouts, tiers);
    EXPECT_EQ(device->ledger().allocations(), 4 + 4) << "shared by kind of plane, and the large record's own";
    EXPECT_EQ(device->host_ledger().allocations(), 4 + 4);
    const auto value = [](size_t record) { return 1.0f + static_cast<float>(record) / 64; };
    for (size_t r = 0; r < records.size(); ++r) {
      const StatePlanes planes = records[r].planes();
      const void* const starts[] = {planes.weight, planes.low, planes.m, planes.v};
      for (const void* start : starts) EXPECT_EQ(reinterpret_cast<uintptr_t>(start) % kPlaneAlignment, 0u);
      std::memset(planes.m, static_cast<int>(r), static_cast<size_t>(layouts[r].moment_bytes()));
      std::memset(planes.v, static_cast<int>(r + 100), static_cast<size_t>(layouts[r].moment_bytes()));
      for (const TensorSpec& tensor : records[r].layout().tensors) {
        const std::vector<float> values(static_cast<size_t>(tensor.elements()), value(r));
        records[r].write_master(tensor, 0, tensor.elements(), values.data());
      }
    }
    for (size_t r = 0; r < records.size(); ++r) {
      const size_t last = static_cast<size_t>(layouts[r].moment_bytes()) - 1;
      EXPECT_EQ(static_cast<size_t>(records[r].planes().m[last]), r);
      EXPECT_EQ(static_cast<size_t>(records[r].planes().v[0]), r + 100);
      for (const TensorSpec& tensor : records[r].layout().tensors) {
        std::vector<float> read(static_cast<size_t>(tensor.elements()));
        records[r].read_master(tensor, 0, tensor.elements(), read.data());
        EXPECT_EQ(read, std::vector<float>(read.size(), value(r)));
      }
    }
    records.erase(records.begin(), records.end() - 1);
    EXPECT_GT(device->host_ledger().bytes(), 0) << "the last record holds what it shared";
  }
  EXPECT_EQ(device->ledger().bytes() + device->host_ledger().bytes(), 0);
}

TEST(Record, MomentsOnDiskTakeNoMemoryAndReadBackByAnyPiece) {
  const TemporaryDirectory directory;
  ScratchFile file({.directory = directory.path()}, 4 * kDiskBlock);
  const auto device = make_cpu_device();
  const LayerLayout layout = make_layout({{.name = "w", .rows = 8, .cols = 128}});
  LayerRecord record(*device, layout, Tier::host, {.file = &file, .m = 0, .v = 2 * kDiskBlock});
  EXPECT_EQ(device->host_ledger().bytes(), 8 * 128 * 4) << "weights and low bits";
  EXPECT_EQ(record.planes().m, nullptr);
  std::vector<float> m(1024), v(1024), read(1024);
  for (size_t i = 0; i < m.size(); ++i) {
    m[i] = static_cast<float>(i);
    v[i] = -static_cast<float>(i);
  }
  const TensorSpec& tensor = record.layout().tensors.front();
  using Moment = LayerRecord::Moment;
  record.read_moment(Moment::first, tensor, 0, 1024, read.data());
  EXPECT_EQ(read, std::vector<float>(1024, 0.0f));
  for (int64_t at = 0; at < 1024; at += 100) {
    const int64_t count = std::min<int64_t>(100, 1024 - at);
    record.write_moment(Moment::first, tensor, at, count, m.data() + at);
    record.write_moment(Moment::second, tensor, at, count, v.data() + at);
  }
  record.read_moment(Moment::first, tensor, 0, 1024, read.data());
  EXPECT_EQ(read, m);
  record.read_moment(Moment::second, tensor, 0, 1024, read.data());
  EXPECT_EQ(read, v);
  record.read_moment(Moment::second, tensor, 77, 3, read.data());
  EXPECT_EQ(read[1], v[78]);
}

}  // namespace
}  // namespace megatrain
