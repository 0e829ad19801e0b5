// Attention of samples to their prompt and to their own tokens, as an operation of XLA's CPU backend.
//
// All samples of a prompt are multiplied with its keys and values as rows of two matrix products, two
// vectors of rows at a time, with an online softmax (Dao et al. 2022), so that scores never leave a
// core's cache. A sample's own entries are read once, from the first to the last one that it attends
// to. XLA's threads share the work: a piece is up to two vectors of rows of a head of keys.
//
// `attention.py` describes the arguments; `compilation.py` compiles this file. The vectors are GCC's
// and Clang's extension, as wide as the processor's: of wider ones GCC keeps the parts in memory, and
// with AVX2 attention took several times as long.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "xla/ffi/api/ffi.h"

// A handler's parameter of this type is XLA's threads.
template <>
struct xla::ffi::CtxBinding<xla::ffi::ThreadPool> { using Ctx = ThreadPool; };

namespace {

namespace ffi = xla::ffi;

// Floats in a vector, and rows of a product's tile, which fills the registers.
#if defined(__AVX512F__)
constexpr int64_t kLanes = 16, kTile = 8;
#elif defined(__AVX__)
constexpr int64_t kLanes = 8, kTile = 4;
#else
constexpr int64_t kLanes = 4, kTile = 4;
#endif
constexpr int64_t kRows = 2 * kLanes;     // rows that are multiplied with a prompt together
constexpr int64_t kKeys = 128;            // a prompt's keys between two updates of the maximum score
constexpr int64_t kFewRows = 4;           // so few are read one by one: vectors would be mostly empty
constexpr int64_t kWorthAThread = 1 << 19;  // multiplications that are worth waking a thread
constexpr float kLowest = -1e30f;         // the score of a masked key

typedef float Lanes __attribute__((vector_size(4 * kLanes)));
typedef int32_t Ints __attribute__((vector_size(4 * kLanes)));

inline Lanes Load(const float* from) {
  Lanes x;
  std::memcpy(&x, from, sizeof x);
  return x;
}

inline float Total(Lanes x) {
  float parts[kLanes];
  std::memcpy(parts, &x, sizeof x);
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t i = 0; i < half; ++i) parts[i] += parts[i + half];
  }
  return parts[0];
}

// The exponential of non-positive numbers, to 3e-7 of its value; 0 below -87, NaN for NaN.
inline Lanes ExpOfNegative(Lanes x) {
  constexpr float kLeast = -87.0f;  // below this, exp is not a normal float
  const Ints vanishes = x < kLeast;
  x = vanishes ? Lanes{} + kLeast : x;
  // A float of this size has no fractional bits: adding it rounds to an integer, which is then in
  // the sum's lowest bits.
  const Lanes big = Lanes{} + 0x1.8p23f;
  const Lanes shifted = x * 1.4426950408889634f + big;
  const Lanes power = shifted - big;
  // ln(2) in two parts, the first with few digits.
  const Lanes rest = x - power * 0.693359375f + power * 2.12194440e-4f;
  // On [-ln(2) / 2, ln(2) / 2]: Cephes' single-precision polynomial.
  Lanes value = rest * 1.9875691500e-4f + 1.3981999507e-3f;
  value = value * rest + 8.3334519073e-3f;
  value = value * rest + 4.1665795894e-2f;
  value = value * rest + 1.6666665459e-1f;
  value = value * rest + 5.0000001201e-1f;
  value = value * (rest * rest) + (rest + 1.0f);
  const Lanes scale = (Lanes)(((Ints)shifted + 127) << 23);
  return vanishes ? Lanes{} : value * scale;
}

// Adds a product to a tile of sums: to row i, for each k < count, left[i * down + k * along] times
// row k of `right`.
template <int kHeight, int kHalves>
inline void AddProducts(Lanes* sums, const float* left, int64_t down, int64_t along,
                        const Lanes* right, int64_t count) {
  Lanes tile[kHeight][kHalves];
  std::memcpy(tile, sums, sizeof tile);
  for (int64_t k = 0; k < count; ++k) {
    for (int i = 0; i < kHeight; ++i) {
      const float factor = left[i * down + k * along];
      for (int half = 0; half < kHalves; ++half) {
        tile[i][half] += right[k * kHalves + half] * factor;
      }
    }
  }
  std::memcpy(sums, tile, sizeof tile);
}

// Attends from up to kHalves * kLanes rows to a prompt. Writes each row's maximum score, its sum of the
// exponentials of scores minus the maximum, and the sum of the values with these weights.
template <int kHalves>
void MeetPrompt(const float* q, int64_t rows, const float* keys, const float* values, int64_t length,
                int64_t width, float* peaks, float* weights, float* mixed) {
  constexpr int64_t kWide = kHalves * kLanes;
  std::vector<Lanes> columns(kHalves * width);  // the queries, as [channel, row]
  std::vector<Lanes> sums(kHalves * width), scores(kHalves * kKeys);
  for (int64_t row = 0; row < kWide; ++row) {
    // Missing rows repeat the last one; any values will do.
    const float* query = q + std::min(row, rows - 1) * width;
    for (int64_t c = 0; c < width; ++c) columns[c * kHalves + row / kLanes][row % kLanes] = query[c];
  }
  Lanes peak[kHalves], weight[kHalves] = {};
  for (Lanes& one : peak) one = Lanes{} + kLowest;
  for (int64_t start = 0; start < length; start += kKeys) {
    const int64_t count = std::min(kKeys, length - start);
    const float *these = keys + start * width, *those = values + start * width;
    std::fill_n(scores.begin(), count * kHalves, Lanes{});
    int64_t key = 0;
    for (; key + kTile <= count; key += kTile) {
      AddProducts<kTile, kHalves>(&scores[key * kHalves], these + key * width, width, 1,
                                  columns.data(), width);
    }
    for (; key < count; ++key) {
      AddProducts<1, kHalves>(&scores[key * kHalves], these + key * width, width, 1, columns.data(),
                              width);
    }
    for (int half = 0; half < kHalves; ++half) {
      Lanes largest = peak[half];
      for (key = half; key < count * kHalves; key += kHalves) {
        largest = scores[key] > largest ? scores[key] : largest;
      }
      const Lanes scale = ExpOfNegative(peak[half] - largest);
      weight[half] *= scale;
      for (key = half; key < count * kHalves; key += kHalves) {
        scores[key] = ExpOfNegative(scores[key] - largest);
        weight[half] += scores[key];
      }
      for (int64_t at = half; at < width * kHalves; at += kHalves) sums[at] *= scale;
      peak[half] = largest;
    }
    for (int64_t c = 0; c < width; c += kTile) {
      AddProducts<kTile, kHalves>(&sums[c * kHalves], those + c, 1, width, scores.data(), count);
    }
  }
  for (int64_t row = 0; row < rows; ++row) {
    peaks[row] = peak[row / kLanes][row % kLanes];
    weights[row] = weight[row / kLanes][row % kLanes];
    for (int64_t c = 0; c < width; ++c) {
      mixed[row * width + c] = sums[c * kHalves + row / kLanes][row % kLanes];
    }
  }
}

// Scores keys for one query, those that `seen` masks with the lowest score, and returns the maximum.
// Without `seen`, none is masked. Scores are padded to whole vectors with the lowest one.
inline float Score(const float* q, const float* keys, int64_t count, int64_t width, const bool* seen,
            float* scores) {
  float peak = kLowest;
  for (int64_t key = 0; key < count; ++key) {
    scores[key] = kLowest;
    if (seen != nullptr && !seen[key]) continue;
    Lanes product = Load(q) * Load(keys + key * width);
    for (int64_t c = kLanes; c < width; c += kLanes) {
      product += Load(q + c) * Load(keys + key * width + c);
    }
    scores[key] = Total(product);
    peak = std::max(peak, scores[key]);
  }
  for (int64_t key = count; key % kLanes != 0; ++key) scores[key] = kLowest;
  return peak;
}

// Turns scores into weights, and returns their sum.
inline float Weigh(float* scores, int64_t count, float peak) {
  Lanes sum = {};
  for (int64_t key = 0; key < count; key += kLanes) {
    const Lanes weight = ExpOfNegative(Load(scores + key) - peak);
    sum += weight;
    std::memcpy(scores + key, &weight, sizeof weight);
  }
  return Total(sum);
}

// Scales `mixed`, and adds the weighted values.
inline void Mix(const float* weights, const float* values, int64_t count, int64_t width, float scale,
         float* mixed) {
  for (int64_t c = 0; c < width; c += kLanes) {
    // Two sums: an addition waits for the previous one.
    Lanes sums[2] = {Load(mixed + c) * scale, Lanes{}};
    for (int64_t key = 0; key < count; ++key) {
      if (weights[key] == 0) continue;  // as of masked entries, which may be anything
      sums[key % 2] += Load(values + key * width + c) * weights[key];
    }
    sums[0] += sums[1];
    std::memcpy(mixed + c, sums, sizeof sums[0]);
  }
}

inline void Prefetch(const float* begin, int64_t count) {
  for (int64_t at = 0; at < count; at += kLanes) __builtin_prefetch(begin + at, 0, 2);
}

// What the threads of a call share. Own entries are those of the layer.
struct Job {
  int64_t prompts, kv_heads, samples, queries, width, entries, length, capacity, taken;
  const float *q, *prompt_keys, *prompt_values, *own_keys, *own_values;
  const bool* seen;
  const int32_t* lengths;
  float* mixed;
  std::atomic<int64_t> next{0};

  int64_t rows() const { return samples * queries; }
  int64_t blocks() const { return (rows() + kRows - 1) / kRows; }
  int64_t pieces() const { return prompts * kv_heads * blocks(); }

  // What a row sees of its sample's own entries.
  const bool* Sees(int64_t prompt, int64_t row) const {
    const int64_t sample = row / queries, token = row % queries % length;
    return seen + ((prompt * samples + sample) * length + token) * capacity;
  }

  // Attends for some rows of a head; heads are numbered over all prompts.
  void Attend(int64_t head, int64_t first, int64_t count) const {
    const int64_t prompt = head / kv_heads, of_prompt = head * entries * width;
    const float* query = q + (head * rows() + first) * width;
    float* out = mixed + (head * rows() + first) * width;
    bool idle = true;
    for (int64_t i = 0; i < count && idle; ++i) {
      const bool* sees = Sees(prompt, first + i);
      idle = std::find(sees, sees + taken, true) == sees + taken;
    }
    std::fill_n(out, count * width, 0.0f);
    if (idle) return;
    const int64_t shown = lengths[prompt];
    const float *keys = prompt_keys + of_prompt, *values = prompt_values + of_prompt;
    std::vector<float> scores(std::max(taken, shown) + kLanes);
    float peaks[kRows], weights[kRows];
    for (int64_t i = 0; i < count && count <= kFewRows; ++i) {
      peaks[i] = Score(query + i * width, keys, shown, width, nullptr, scores.data());
      weights[i] = Weigh(scores.data(), shown, peaks[i]);
      Mix(scores.data(), values, shown, width, 1.0f, out + i * width);
    }
    if (count > kFewRows) {
      const auto meet = count <= kLanes ? MeetPrompt<1> : MeetPrompt<2>;
      meet(query, count, keys, values, shown, width, peaks, weights, out);
    }

    for (int64_t i = 0; i < count; ++i, query += width, out += width) {
      // A sample that began long after the others uses few of many entries.
      const bool* sees = Sees(prompt, first + i);
      const int64_t begin = std::find(sees, sees + taken, true) - sees;
      int64_t end = taken;
      while (end > begin && !sees[end - 1]) --end;
      const int64_t own = ((head * samples + (first + i) / queries) * capacity + begin) * width;
      // Own entries are read once: without a prefetch, a core would wait for each row's first ones.
      Prefetch(own_values + own, (end - begin) * width);
      if ((first + i) % queries == queries - 1 && i + 1 < count) {
        Prefetch(own_keys + own + (capacity - begin) * width, taken * width);
      }
      const float peak = std::max(peaks[i], Score(query, own_keys + own, end - begin, width,
                                                  sees + begin, scores.data()));
      const float scale = ExpOfNegative(Lanes{} + (peaks[i] - peak))[0];
      const float weight = weights[i] * scale + Weigh(scores.data(), end - begin, peak);
      Mix(scores.data(), own_values + own, end - begin, width, scale, out);
      const float share = weight == 0 ? 0.0f : 1.0f / weight;  // 0 for padding without a prompt
      for (int64_t c = 0; c < width; ++c) out[c] *= share;
    }
  }
};

// Starts the work. Checks what only a running program knows; `attention.py` has checked the sizes.
ffi::Future Attention(ffi::ThreadPool pool, ffi::Buffer<ffi::F32, 5> q,
                      ffi::Buffer<ffi::F32, 4> prompt_keys, ffi::Buffer<ffi::F32, 4> prompt_values,
                      ffi::Buffer<ffi::F32> own_keys, ffi::Buffer<ffi::F32> own_values,
                      ffi::Buffer<ffi::PRED, 4> seen, ffi::Buffer<ffi::S32, 1> lengths,
                      ffi::Buffer<ffi::S32, 0> taken, ffi::Buffer<ffi::S32, 0> layer,
                      ffi::Result<ffi::Buffer<ffi::F32, 5>> mixed) {
  const auto sizes = q.dimensions();
  auto job = std::make_shared<Job>();
  job->prompts = sizes[0], job->kv_heads = sizes[1], job->samples = sizes[2];
  job->queries = sizes[3], job->width = sizes[4], job->entries = prompt_keys.dimensions()[2];
  job->length = seen.dimensions()[2], job->capacity = seen.dimensions()[3];
  job->taken = *taken.typed_data(), job->mixed = mixed->typed_data();
  const int64_t heads = job->prompts * job->kv_heads, own_rows = heads * job->samples;
  const int64_t layers = own_keys.element_count() / (own_rows * job->capacity * job->width);
  const int64_t at = *layer.typed_data();
  const auto [shortest, longest] =
      std::minmax_element(lengths.typed_data(), lengths.typed_data() + job->prompts);
  if (at < 0 || at >= layers || job->taken < 0 || job->taken > job->capacity || *shortest < 0 ||
      *longest > job->entries) {
    ffi::Promise refused;
    refused.SetError(ffi::Error::InvalidArgument(
        "shared_prompt_attention: the layer, `taken`, or a prompt's length is out of range"));
    return ffi::Future(refused);
  }
  job->q = q.typed_data(), job->seen = seen.typed_data(), job->lengths = lengths.typed_data();
  job->prompt_keys = prompt_keys.typed_data(), job->prompt_values = prompt_values.typed_data();
  const int64_t of_layer = at * own_rows * job->capacity * job->width;
  job->own_keys = own_keys.typed_data() + of_layer;
  job->own_values = own_values.typed_data() + of_layer;

  const int64_t products = 2 * heads * job->rows() * (*longest + job->taken) * job->width;
  const int64_t threads = std::min({job->pieces(), products / kWorthAThread, pool.num_threads()});
  // No thread waits: the one that ends the last piece tells XLA that the result is there. A thread
  // that comes late finds no piece, and touches nothing else, as the buffers may be gone by then.
  ffi::CountDownPromise promise(job->pieces());
  ffi::Future future(promise);
  auto work = [job, promise]() mutable {
    for (int64_t piece; (piece = job->next.fetch_add(1)) < job->pieces(); promise.CountDown(1)) {
      const int64_t first = piece % job->blocks() * kRows;
      job->Attend(piece / job->blocks(), first, std::min(kRows, job->rows() - first));
    }
  };
  for (int64_t i = 1; i < threads; ++i) pool.Schedule(decltype(work)(work));
  work();
  return future;
}

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(SharedPromptAttention, Attention);
