// A simulated accelerator: torch's PrivateUse1 backend over host memory.
//
// Kernels are the CPU's and run at once, over the memory of the device's own tensors. What the host
// can get wrong about a real device is strict here:
//
// - A non-blocking copy is done when its stream, or an event recorded after it, is waited for; a copy
//   to the device also when a kernel needs it. It reads host memory then. Until then the destination
//   of a copy to the host holds garbage.
// - What one stream writes and another touches must be ordered by an event or by the host (vector
//   clocks, as race detectors have them); anything else raises.
// - Tensors of two devices in one operation raise. Memory is counted and limited.
// - Waits of the host, copies and kernels are counted.
// - After a fork, the child cannot use the device.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/NativeFunctions.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <pthread.h>
#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/Generator.h>
#include <torch/library.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>

namespace py = pybind11;

namespace {

constexpr int kDevices = 2;
constexpr auto kType = c10::DeviceType::PrivateUse1;
constexpr size_t kAlignment = 64;
const char* const kName = "simulated";

using Clock = std::vector<uint64_t>;  // by number of stream: how far it is known to have come

// ---------------------------------------------------------------- state

struct Block {  // one allocation
  int device;
  void* data;
  size_t bytes;
  uint64_t serial;
  size_t home;  // the stream that it was allocated on
  size_t writer = 0;
  uint64_t written = 0;
  std::map<size_t, uint64_t> reads;  // by stream
  std::set<size_t> recorded;         // Tensor.record_stream
};

struct Copy {  // asked for, not done yet
  uint64_t number, position;
  bool to_host;
  at::Tensor host;    // kept, as a pinned allocator keeps it
  at::Tensor device;  // over the same memory as the device's tensor, or what was read from it
  c10::Storage owner;
  const Block* block;
};

struct Stream {
  int device;
  c10::StreamId id;
  uint64_t position = 0;
  Clock clock;
  std::deque<Copy> copies;
};

struct Event {
  Clock clock;
  std::chrono::steady_clock::time_point time;
};

struct Device {
  size_t used = 0, peak = 0, limit = size_t(1) << 40;
  size_t num_allocations = 0;
  int64_t fail_in = -1;  // the number of allocations until one fails; -1: none
  at::Generator generator;
};

std::recursive_mutex mutex;
std::deque<Stream> streams;
Device devices[kDevices];
std::map<const void*, Block*> blocks;
std::map<const char*, size_t> pinned;
std::map<std::string, int64_t> counters;
std::vector<std::string> violations;
Clock host_clock;
uint64_t num_blocks = 0, num_copies = 0;
bool is_initialized = false, is_forked = false;
py::function* on_wait = nullptr;

thread_local int current_device = 0;
thread_local bool counts = true;
thread_local size_t current_stream[kDevices] = {0, 1};  // the default streams

using Lock = std::lock_guard<std::recursive_mutex>;

void count(const std::string& what, int64_t by = 1) {
  if (!counts) return;
  Lock lock(mutex);
  counters[what] += by;
}

void check_process() {
  TORCH_CHECK(
      !is_forked, "Cannot re-initialize ", kName, " in forked subprocess. To use ", kName,
      " with multiprocessing, you must use the 'spawn' start method");
  is_initialized = true;
}

void check_index(int64_t index) {
  TORCH_CHECK(
      0 <= index && index < kDevices, kName, " error: invalid device ordinal ", index, " of ", kDevices);
}

size_t number_of(const c10::Stream& stream) {
  return stream.id() == 0 ? size_t(stream.device_index()) : size_t(kDevices + stream.id() - 1);
}

c10::Stream stream_of(size_t number) {
  const Stream& stream = streams[number];
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, stream.device), stream.id);
}

// ---------------------------------------------------------------- order

void merge(Clock& clock, const Clock& other) {
  if (clock.size() < other.size()) clock.resize(other.size());
  for (size_t i = 0; i < other.size(); i++) clock[i] = std::max(clock[i], other[i]);
}

uint64_t at(const Clock& clock, size_t stream) {
  return stream < clock.size() ? clock[stream] : 0;
}

bool is_before(size_t stream, uint64_t position, size_t now) {
  return stream == now || at(streams[now].clock, stream) >= position ||
      at(host_clock, stream) >= position;
}

Clock clock_of(size_t number) {
  Clock clock = streams[number].clock;
  merge(clock, host_clock);
  if (clock.size() <= number) clock.resize(number + 1);
  clock[number] = streams[number].position;
  return clock;
}

void perform(const Copy& copy) {
  c10::impl::ExcludeDispatchKeyGuard no_autograd(c10::autograd_dispatch_keyset);
  at::NoGradGuard no_grad;
  if (copy.to_host)
    at::native::copy_(const_cast<at::Tensor&>(copy.host), copy.device, false);
  else
    at::native::copy_(const_cast<at::Tensor&>(copy.device), copy.host, false);
}

// Does the copies that `due` says yes to, in order. They are destroyed after the lock: the last
// reference to a tensor of Python needs its interpreter's lock.
template <typename Due>
void deliver(Due due) {
  std::vector<Copy> done;
  {
    Lock lock(mutex);
    for (size_t s = 0; s < streams.size(); s++) {
      auto& waiting = streams[s].copies;
      for (auto it = waiting.begin(); it != waiting.end();) {
        if (due(s, *it)) {
          done.push_back(std::move(*it));
          it = waiting.erase(it);
        } else {
          ++it;
        }
      }
    }
    std::sort(done.begin(), done.end(), [](auto& a, auto& b) { return a.number < b.number; });
    for (const Copy& copy : done) perform(copy);
  }
}

void wait_for(const Clock& clock) {
  deliver([&](size_t s, const Copy& copy) { return copy.position <= at(clock, s); });
  Lock lock(mutex);
  merge(host_clock, clock);
}

void note_wait(const std::string& why) {
  count("synchronizations");
  count("synchronizations." + why);
  if (counts && on_wait != nullptr) {
    py::gil_scoped_acquire gil;
    if (on_wait != nullptr) (*on_wait)(why);
  }
}

Clock clock_of_stream(size_t number) {
  Lock lock(mutex);
  return clock_of(number);
}

void wait_for_stream(size_t number, const std::string& why) {
  note_wait(why);
  wait_for(clock_of_stream(number));
}

Block* block_of(const c10::Storage& storage) {
  return static_cast<Block*>(storage.data_ptr().get_context());
}

// Notes that the current stream touches a block, after the copies that it depends on.
void touch(Block* block, bool writes, const std::string& by) {
  if (block == nullptr) return;
  check_process();
  std::set<const c10::StorageImpl*> sources;
  {
    Lock lock(mutex);
    for (const Stream& stream : streams)
      for (const Copy& copy : stream.copies)
        if (!copy.to_host && copy.block == block)
          sources.insert(copy.host.storage().unsafeGetStorageImpl());
  }
  if (!sources.empty())
    deliver([&](size_t, const Copy& copy) {
      return copy.to_host ? sources.count(copy.host.storage().unsafeGetStorageImpl()) > 0
                          : copy.block == block;
    });
  Lock lock(mutex);
  size_t now = current_stream[block->device];
  Stream& stream = streams[now];
  auto fail = [&](const char* what, size_t other) {
    TORCH_CHECK(
        false, kName, " error: ", by, (writes ? " writes" : " reads"), " a tensor of ", block->bytes,
        " bytes on stream ", stream.id, " that stream ", streams[other].id, what,
        ", and no event orders the two");
  };
  if (block->written && !is_before(block->writer, block->written, now)) fail(" wrote", block->writer);
  if (writes)
    for (auto [reader, position] : block->reads)
      if (!is_before(reader, position, now)) fail(" reads", reader);
  stream.position++;
  if (writes) {
    block->writer = now;
    block->written = stream.position;
    block->reads.clear();
  } else {
    block->reads[now] = stream.position;
  }
}

// ---------------------------------------------------------------- memory

void free_block(void* context) {
  auto* block = static_cast<Block*>(context);
  Lock lock(mutex);
  auto check = [&](size_t user, uint64_t position) {
    if (position && user != block->home && !block->recorded.count(user) &&
        !is_before(user, position, block->home))
      violations.push_back(
          "memory of stream " + std::to_string(streams[block->home].id) + " was freed while stream " +
          std::to_string(streams[user].id) + " uses it (Tensor.record_stream is missing)");
  };
  check(block->writer, block->written);
  for (auto [reader, position] : block->reads) check(reader, position);
  devices[block->device].used -= block->bytes;
  blocks.erase(block->data);
  std::free(block->data);
  delete block;
}

struct Allocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t bytes) override {
    check_process();
    int index = current_device;
    c10::Device where(kType, index);
    if (bytes == 0) return {nullptr, nullptr, &c10::detail::deleteNothing, where};
    Lock lock(mutex);
    Device& device = devices[index];
    bool fails = device.fail_in >= 0 && device.fail_in-- == 0;
    TORCH_CHECK_WITH(
        OutOfMemoryError, !fails && device.used + bytes <= device.limit, kName,
        " out of memory. Tried to allocate ", bytes, " bytes. Device ", index, " has ", device.limit,
        " bytes, of which ", device.used, " are in use.");
    size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    void* data = std::aligned_alloc(kAlignment, rounded);
    TORCH_CHECK(data != nullptr, "The host has no memory left for ", kName);
    std::memset(data, 0xff, rounded);  // never initialised by accident
    device.used += bytes;
    device.peak = std::max(device.peak, device.used);
    device.num_allocations++;
    auto* block = new Block{index, data, bytes, ++num_blocks, current_stream[index]};
    blocks[data] = block;
    return {data, block, &free_block, where};
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
  bool initialized() override { return is_initialized; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    Lock lock(mutex);
    if (auto* block = static_cast<Block*>(data.get_context())) block->recorded.insert(number_of(stream));
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex index) override {
    Lock lock(mutex);
    c10::CachingDeviceAllocator::DeviceStats stats;
    constexpr size_t all = size_t(c10::CachingAllocator::StatType::AGGREGATE);
    for (auto* stat : {&stats.allocated_bytes[all], &stats.reserved_bytes[all]}) {
      stat->current = int64_t(devices[index].used);
      stat->peak = int64_t(devices[index].peak);
    }
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex index) override {
    Lock lock(mutex);
    devices[index].peak = devices[index].used;
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex index) override {
    Lock lock(mutex);
    return {devices[index].limit - devices[index].used, devices[index].limit};
  }
};

Allocator allocator;
REGISTER_ALLOCATOR(kType, &allocator)

struct PinnedAllocator final : c10::Allocator {
  static void free(void* data) {
    Lock lock(mutex);
    pinned.erase(static_cast<const char*>(data));
    std::free(data);
  }
  c10::DataPtr allocate(size_t bytes) override {
    check_process();
    size_t rounded = std::max(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
    void* data = std::aligned_alloc(kAlignment, rounded);
    Lock lock(mutex);
    pinned[static_cast<const char*>(data)] = rounded;
    return {data, data, &PinnedAllocator::free, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &PinnedAllocator::free; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
};

PinnedAllocator pinned_allocator;

// ---------------------------------------------------------------- random numbers

struct Generator final : c10::GeneratorImpl {
  explicit Generator(c10::DeviceIndex index)
      : GeneratorImpl(c10::Device(kType, index), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        host(at::make_generator<at::CPUGeneratorImpl>()) {}
  static c10::DeviceType device_type() { return kType; }
  void set_current_seed(uint64_t seed) override { host.set_current_seed(seed); }
  void set_offset(uint64_t) override { TORCH_CHECK(false, kName, ": a generator has no offset"); }
  uint64_t get_offset() const override { TORCH_CHECK(false, kName, ": a generator has no offset"); }
  uint64_t current_seed() const override { return host.current_seed(); }
  uint64_t seed() override { return const_cast<at::Generator&>(host).seed(); }
  void set_state(const c10::TensorImpl& state) override {
    const_cast<at::Generator&>(host).unsafeGetGeneratorImpl()->set_state(state);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    return host.unsafeGetGeneratorImpl()->get_state();
  }
  Generator* clone_impl() const override {
    auto* copy = new Generator(device_.index());
    copy->host = host.clone();
    return copy;
  }
  at::Generator host;
};

at::Generator& default_generator(int64_t index) {
  check_process();
  index = index < 0 ? current_device : index;
  check_index(index);
  Lock lock(mutex);
  auto& generator = devices[index].generator;
  if (!generator.defined()) {
    generator = at::make_generator<Generator>(c10::DeviceIndex(index));
    generator.set_current_seed(c10::detail::getNonDeterministicRandom());
  }
  return generator;
}

// ---------------------------------------------------------------- devices, streams, events

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device to) const override {
    c10::Device before = getDevice();
    setDevice(to);
    return before;
  }
  c10::Device getDevice() const override { return {kType, c10::DeviceIndex(current_device)}; }
  void setDevice(c10::Device to) const override {
    check_index(to.index());
    current_device = to.index();
  }
  void uncheckedSetDevice(c10::Device to) const noexcept override {
    if (to.index() >= 0) current_device = to.index();
  }
  c10::Stream getStream(c10::Device device) const override {
    return stream_of(current_stream[device.index() < 0 ? current_device : device.index()]);
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return stream_of(device.index() < 0 ? current_device : device.index());
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return getNewStream(device, 0);
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    Lock lock(mutex);
    int index = device.index() < 0 ? current_device : device.index();
    check_index(index);
    streams.push_back(Stream{index, c10::StreamId(streams.size() - kDevices + 1)});
    return stream_of(streams.size() - 1);
  }
  c10::Stream exchangeStream(c10::Stream to) const override {
    c10::Stream before = getStream(to.device());
    current_stream[to.device_index()] = number_of(to);
    return before;
  }
  c10::DeviceIndex deviceCount() const noexcept override { return is_forked ? 0 : kDevices; }
  void record(
      void** event, const c10::Stream& stream, const c10::DeviceIndex, const c10::EventFlag) const override {
    Lock lock(mutex);
    if (*event == nullptr) *event = new Event();
    auto* recorded = static_cast<Event*>(*event);
    recorded->clock = clock_of(number_of(stream));
    recorded->time = std::chrono::steady_clock::now();
  }
  void block(void* event, const c10::Stream& stream) const override {
    Lock lock(mutex);
    if (event != nullptr) merge(streams[number_of(stream)].clock, static_cast<Event*>(event)->clock);
  }
  bool queryEvent(void* event) const override {
    return event == nullptr || is_done(static_cast<Event*>(event)->clock);
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }
  void synchronizeEvent(void* event) const override {
    if (event == nullptr) return;
    note_wait("event");
    wait_for(static_cast<Event*>(event)->clock);
  }
  double elapsedTime(void* from, void* to, const c10::DeviceIndex) const override {
    auto time = static_cast<Event*>(to)->time - static_cast<Event*>(from)->time;
    return std::chrono::duration<double, std::milli>(time).count();
  }
  bool queryStream(const c10::Stream& stream) const override {
    return is_done(clock_of_stream(number_of(stream)));
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    wait_for_stream(number_of(stream), "stream");
  }
  void synchronizeDevice(const c10::DeviceIndex index) const override {
    note_wait("device");
    Clock clock;
    {
      Lock lock(mutex);
      int device = index < 0 ? current_device : index;
      for (size_t s = 0; s < streams.size(); s++)
        if (streams[s].device == device) merge(clock, clock_of(s));
    }
    wait_for(clock);
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    allocator.recordStream(data, stream);
  }

 private:
  static bool is_done(const Clock& clock) {
    Lock lock(mutex);
    for (size_t s = 0; s < streams.size(); s++)
      for (const Copy& copy : streams[s].copies)
        if (copy.position <= at(clock, s)) return false;
    return true;
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

void resize_storage(c10::StorageImpl* storage, size_t bytes) {
  c10::DeviceGuard guard(storage->device());
  c10::DataPtr data = allocator.allocate(bytes);
  touch(static_cast<Block*>(storage->data_ptr().get_context()), false, "a resize");
  if (size_t kept = std::min(bytes, storage->nbytes()))
    std::memcpy(data.get(), storage->data_ptr().get(), kept);
  touch(static_cast<Block*>(data.get_context()), true, "a resize");
  storage->set_data_ptr_noswap(std::move(data));
  storage->set_nbytes(bytes);
}

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return !is_forked; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return is_initialized; }
  void init() const override { check_process(); }
  c10::DeviceIndex deviceCount() const override { return is_forked ? 0 : kDevices; }
  void setCurrentDevice(c10::DeviceIndex index) const override {
    check_index(index);
    current_device = index;
  }
  c10::DeviceIndex getCurrentDevice() const override { return c10::DeviceIndex(current_device); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    auto before = c10::DeviceIndex(current_device);
    setCurrentDevice(index);
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return index < 0 ? c10::DeviceIndex(current_device) : exchangeDevice(index);
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override {
    return default_generator(index);
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    return at::make_generator<Generator>(index < 0 ? c10::DeviceIndex(current_device) : index);
  }
  c10::Device getDeviceFromPtr(void* data) const override {
    Lock lock(mutex);
    auto after = blocks.upper_bound(data);
    TORCH_CHECK(after != blocks.begin(), "This is no memory of ", kName);
    return {kType, c10::DeviceIndex(std::prev(after)->second->device)};
  }
  bool isPinnedPtr(const void* data) const override {
    Lock lock(mutex);
    auto after = pinned.upper_bound(static_cast<const char*>(data));
    if (after == pinned.begin()) return false;
    auto [begin, bytes] = *std::prev(after);
    return static_cast<const char*>(data) < begin + bytes;
  }
  c10::Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator; }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    resize_storage(storage.unsafeGetStorageImpl(), bytes);
  }
};

// ---------------------------------------------------------------- kernels

bool is_ours(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == kType;
}

at::Tensor make_view(const c10::Storage& storage, c10::DispatchKey key, const at::Tensor& like) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(key), like.dtype());
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  if (like.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
  return tensor;
}

at::Tensor new_on_device(const at::Tensor& like, c10::Device device) {
  c10::DeviceGuard guard(device);
  return at::Tensor(at::detail::empty_strided_generic(
      like.sizes(), like.strides(), &allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      like.scalar_type()));
}

// One call of an operator, computed by the CPU on the memory of the device.
class Call {
 public:
  explicit Call(std::string name) : name_(std::move(name)) { check_process(); }

  // Returns a CPU tensor over the same memory.
  at::Tensor host(const at::Tensor& tensor, bool writes) {
    if (!is_ours(tensor)) {
      if (tensor.defined() && tensor.is_cpu() && (tensor.dim() > 0 || writes)) foreign_ = tensor.device();
      check();
      return tensor;
    }
    if (!device_) device_ = tensor.device();
    if (*device_ != tensor.device()) foreign_ = tensor.device();
    check();
    c10::DeviceGuard guard(tensor.device());
    touch(block_of(tensor.storage()), writes, name_);
    auto* impl = tensor.storage().unsafeGetStorageImpl();
    auto [it, is_new] = storages_.try_emplace(impl, Pair{tensor.storage(), {}});
    if (is_new) {
      it->second.host = c10::Storage(
          c10::Storage::use_byte_size_t(), impl->nbytes(),
          c10::DataPtr(impl->mutable_data(), c10::Device(c10::kCPU)), c10::GetCPUAllocator(), true);
    }
    auto view = make_view(it->second.host, c10::DispatchKey::CPU, tensor);
    originals_.emplace_back(view, tensor, writes);
    return view;
  }

  // Returns the device's tensor for one that the CPU returned.
  at::Tensor device(const at::Tensor& host) {
    if (!host.defined() || !host.is_cpu()) return host;
    for (auto& [view, original, writes] : originals_)
      if (view.is_same(host)) return original;
    for (auto& [impl, pair] : storages_)
      if (pair.host.is_alias_of(host.storage()))
        return make_view(pair.device, c10::DispatchKey::PrivateUse1, host);
    at::Tensor result = new_on_device(host, target());
    c10::DeviceGuard guard(target());
    touch(block_of(result.storage()), true, name_);
    auto view = Call(name_).unchecked(result);
    at::native::copy_(view, host, false);
    return result;
  }

  // Carries over what the CPU did to sizes and storages of tensors that it wrote to.
  void finish() {
    for (auto& [impl, pair] : storages_) {
      auto* host = pair.host.unsafeGetStorageImpl();
      if (host->data_ptr().get() == impl->data_ptr().get() && host->nbytes() == impl->nbytes()) continue;
      resize_storage(impl, host->nbytes());
      std::memcpy(impl->mutable_data(), host->data_ptr().get(), host->nbytes());
    }
    for (auto& [view, original, writes] : originals_) {
      if (!writes) continue;
      if (view.sizes() != original.sizes() || view.strides() != original.strides() ||
          view.storage_offset() != original.storage_offset())
        original.unsafeGetTensorImpl()->set_sizes_and_strides(
            view.sizes(), view.strides(), view.storage_offset());
    }
  }

  void set_target(c10::Device device) {
    if (!device_) device_ = device.has_index() ? device : c10::Device(kType, c10::DeviceIndex(current_device));
  }
  c10::Device target() const {
    return device_ ? *device_ : c10::Device(kType, c10::DeviceIndex(current_device));
  }
  void allow_host_tensors() { allows_host_ = true; }

  at::Tensor unchecked(const at::Tensor& tensor) {
    auto* impl = tensor.storage().unsafeGetStorageImpl();
    c10::Storage storage(
        c10::Storage::use_byte_size_t(), impl->nbytes(),
        c10::DataPtr(impl->mutable_data(), c10::Device(c10::kCPU)), c10::GetCPUAllocator(), false);
    return make_view(storage, c10::DispatchKey::CPU, tensor);
  }

 private:
  void check() const {
    if (!foreign_ || !device_ || (allows_host_ && foreign_->is_cpu())) return;
    TORCH_CHECK(
        false, "Expected all tensors to be on the same device, but found at least two devices, ",
        device_->str(), " and ", foreign_->str(), "! (when checking the arguments of ", name_, ")");
  }

  struct Pair {
    c10::Storage device, host;
  };
  std::string name_;
  std::optional<c10::Device> device_, foreign_;
  bool allows_host_ = false;
  std::map<c10::StorageImpl*, Pair> storages_;
  std::vector<std::tuple<at::Tensor, at::Tensor, bool>> originals_;
};

// Operators of which some argument may stay on the host.
const std::set<std::string> kTakesHostTensors = {
    "aten::index.Tensor", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_",
    "aten::_pack_padded_sequence", "aten::index.Tensor_out", "aten::_unsafe_index.Tensor",
    "aten::_unsafe_index_put"};

at::Generator host_generator(const c10::IValue& given, c10::Device device) {
  at::Generator generator =
      given.isGenerator() ? given.toGenerator() : default_generator(device.index());
  TORCH_CHECK(
      generator.device().type() == kType, "Expected a '", kName, "' device type for generator but found '",
      generator.device().type(), "'");
  return static_cast<Generator*>(generator.unsafeGetGeneratorImpl())->host;
}

void run_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const std::string name = c10::toString(op.operator_name());
  const size_t num_arguments = schema.arguments().size();
  const size_t begin = stack->size() - num_arguments;
  c10::impl::ExcludeDispatchKeyGuard no_autograd(c10::autograd_dispatch_keyset);
  Call call(name);
  if (kTakesHostTensors.count(name)) call.allow_host_tensors();
  std::optional<size_t> generator;
  bool has_mask = false;
  for (size_t i = 0; i < num_arguments; i++) {
    c10::IValue& value = (*stack)[begin + i];
    const auto& argument = schema.arguments()[i];
    bool writes = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
    if (argument.name() == "generator") {
      generator = i;
    } else if (value.isTensor()) {
      value = call.host(value.toTensor(), writes);
    } else if (value.isTensorList()) {
      std::vector<at::Tensor> tensors = value.toTensorVector();
      for (at::Tensor& tensor : tensors) tensor = call.host(tensor, writes);
      value = c10::IValue(tensors);
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> tensors;
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
        if (tensor && is_ours(*tensor)) {
          auto type = tensor->scalar_type();
          has_mask |= type == at::kBool || type == at::kByte;
        }
        tensors.push_back(tensor ? std::optional(call.host(*tensor, writes)) : std::nullopt);
      }
      value = c10::IValue(tensors);
    } else if (value.isDevice() && value.toDevice().type() == kType) {
      call.set_target(value.toDevice());
      value = c10::IValue(c10::Device(c10::kCPU));
    }
  }
  c10::DeviceGuard guard(call.target());
  count("kernels");
  bool is_index = name.find("index") != std::string::npos;
  if (op.hasTag(at::Tag::data_dependent_output) ||
      (is_index ? has_mask : op.hasTag(at::Tag::dynamic_output_shape)))
    wait_for_stream(current_stream[current_device], "result");  // its sizes or value go to the host
  std::optional<at::Tensor> outer_state;
  at::Generator drawn_from;
  if (generator) {
    c10::IValue& value = (*stack)[begin + *generator];
    value = c10::IValue(host_generator(value, call.target()));
  } else if (op.hasTag(at::Tag::nondeterministic_seeded)) {
    // It draws from the CPU's generator, which stands for the device's in the meantime.
    drawn_from = host_generator(c10::IValue(), call.target());
    auto outer = at::detail::getDefaultCPUGenerator();
    outer_state = outer.get_state();
    outer.set_state(drawn_from.get_state());
  }
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  if (outer_state) {
    auto outer = at::detail::getDefaultCPUGenerator();
    drawn_from.set_state(outer.get_state());
    outer.set_state(*outer_state);
  }
  call.finish();
  const size_t num_returns = schema.returns().size();
  const size_t first = stack->size() - num_returns;
  for (size_t i = 0; i < num_returns; i++) {
    c10::IValue& value = (*stack)[first + i];
    if (name == "aten::_pack_padded_sequence" && i == 1) continue;  // lengths stay on the host
    if (value.isTensor()) {
      value = call.device(value.toTensor());
    } else if (value.isTensorList()) {
      std::vector<at::Tensor> tensors = value.toTensorVector();
      for (at::Tensor& tensor : tensors) tensor = call.device(tensor);
      value = c10::IValue(tensors);
    }
  }
}

// ---------------------------------------------------------------- operators with a kernel of their own

c10::Device chosen(std::optional<c10::Device> device) {
  return device && device->has_index() ? *device
                                       : c10::Device(kType, c10::DeviceIndex(current_device));
}

at::Tensor empty(
    at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
    std::optional<c10::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  check_index(chosen(device).index());
  c10::DeviceGuard guard(chosen(device));
  return at::Tensor(at::detail::empty_generic(
      size, &allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::dtype_or_default(dtype),
      format));
}

at::Tensor empty_strided(
    at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> dtype,
    std::optional<at::Layout>, std::optional<c10::Device> device, std::optional<bool>) {
  check_index(chosen(device).index());
  c10::DeviceGuard guard(chosen(device));
  return at::Tensor(at::detail::empty_strided_generic(
      size, stride, &allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::dtype_or_default(dtype)));
}

void spoil(const at::Tensor& host) {
  if (host.numel() && host.is_non_overlapping_and_dense())
    std::memset(host.data_ptr(), host.scalar_type() == at::kBool ? 1 : 0xff, host.nbytes());
}

at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  if (from.numel() == 0) return to;
  c10::impl::ExcludeDispatchKeyGuard no_autograd(c10::autograd_dispatch_keyset);
  if (is_ours(from) && is_ours(to)) {
    if (from.device() != to.device()) {
      count("copies.between_devices");
      {  // a copy to another device happens on the streams of both
        c10::DeviceGuard guard(from.device());
        touch(block_of(from.storage()), false, "a copy");
      }
      c10::DeviceGuard guard(to.device());
      touch(block_of(to.storage()), true, "a copy");
      Call plain("a copy");
      auto view = plain.unchecked(to);
      at::native::copy_(view, plain.unchecked(from), false);
      return to;
    }
    count("copies.on_device");
    c10::DeviceGuard guard(from.device());
    Call call("aten::copy_");
    auto source = call.host(from, false);
    auto target = call.host(to, true);
    at::native::copy_(target, source, false);
    return to;
  }
  const bool to_host = is_ours(from);
  const at::Tensor &device = to_host ? from : to, &host = to_host ? to : from;
  TORCH_CHECK(host.is_cpu(), "Cannot copy between ", from.device(), " and ", to.device());
  const std::string direction = to_host ? "copies.to_host" : "copies.to_device";
  count(direction);
  c10::DeviceGuard guard(device.device());
  touch(block_of(device.storage()), !to_host, "a copy");
  Call plain("a copy");
  auto view = plain.unchecked(device);
  size_t stream = current_stream[current_device];
  if (!non_blocking) {
    wait_for_stream(stream, to_host ? "copy_to_host" : "copy_to_device");
    auto target = to_host ? host : view;
    at::native::copy_(target, to_host ? view : host, false);
    return to;
  }
  count(direction + ".non_blocking");
  Copy copy{0, 0, to_host, host, view, device.storage(), block_of(device.storage())};
  if (to_host) {
    // The stream's next kernels may change it: this is what it holds when the copy's turn comes.
    copy.device = at::native::clone(view, std::nullopt);
    copy.owner = c10::Storage();
    spoil(host);
  }
  Lock lock(mutex);
  copy.number = ++num_copies;
  copy.position = streams[stream].position;
  streams[stream].copies.push_back(std::move(copy));
  return to;
}

at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
  if (to.sizes() != from.sizes()) const_cast<at::Tensor&>(to).resize_(from.sizes());
  return copy_from(from, to, false);
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  c10::DeviceGuard guard(self.device());
  touch(block_of(self.storage()), false, "item");
  count("copies.to_host");
  wait_for_stream(current_stream[current_device], "item");
  return at::native::_local_scalar_dense_cpu(Call("item").unchecked(self));
}

at::Tensor& set_storage(
    at::Tensor& self, at::Storage source, int64_t offset, at::IntArrayRef size, at::IntArrayRef stride) {
  TORCH_CHECK(
      source.device() == self.device(), "Attempted to set the storage of a tensor on device \"",
      self.device(), "\" to a storage on different device \"", source.device(), "\".");
  std::vector<int64_t> contiguous(size.size(), 1);
  for (size_t i = size.size(); i-- > 1;) contiguous[i - 1] = contiguous[i] * std::max<int64_t>(size[i], 1);
  if (stride.empty()) stride = contiguous;
  size_t bytes = at::detail::computeStorageNbytes(size, stride, self.dtype().itemsize(), size_t(offset));
  if (bytes > source.nbytes()) resize_storage(source.unsafeGetStorageImpl(), bytes);
  self.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(source));
  self.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride, offset);
  return self;
}

at::Tensor& set_whole_storage(at::Tensor& self, at::Storage source) {
  int64_t size = int64_t(source.nbytes() / self.dtype().itemsize());
  return set_storage(self, std::move(source), 0, {size}, {});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  return set_storage(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

at::Tensor& set_nothing(at::Tensor& self) {
  c10::DeviceGuard guard(self.device());
  c10::Storage none(c10::Storage::use_byte_size_t(), 0, allocator.allocate(0), &allocator, true);
  return set_storage(self, none, 0, {0}, {});
}

const at::Tensor& resize(
    const at::Tensor& self, at::IntArrayRef size, std::optional<at::MemoryFormat> format) {
  auto* impl = self.unsafeGetTensorImpl();
  if (self.sizes() != size) {
    impl->set_sizes_contiguous(size);
    if (format && *format != at::MemoryFormat::Contiguous) impl->empty_tensor_restride(*format);
    size_t bytes = at::detail::computeStorageNbytes(
        self.sizes(), self.strides(), self.dtype().itemsize(), size_t(self.storage_offset()));
    if (bytes > self.storage().nbytes()) resize_storage(self.storage().unsafeGetStorageImpl(), bytes);
  }
  return self;
}

at::Tensor as_strided(
    const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride, std::optional<int64_t> offset) {
  auto view = make_view(self.storage(), c10::DispatchKey::PrivateUse1, self);
  view.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride, offset.value_or(self.storage_offset()));
  return view;
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  allocator.recordStream(self.storage().data_ptr(), stream);
}

at::Tensor convolution(
    const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
    at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
    at::IntArrayRef output_padding, int64_t groups) {
  Call call("aten::convolution");
  count("kernels");
  auto host_input = call.host(input, false), host_weight = call.host(weight, false);
  std::optional<at::Tensor> host_bias;
  if (bias && bias->defined()) host_bias = call.host(*bias, false);
  return call.device(at::convolution(
      host_input, host_weight, host_bias, stride, padding, dilation, transposed, output_padding, groups));
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& weight, at::IntArrayRef stride,
    at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding,
    int64_t groups, std::array<bool, 3> mask) {
  Call call("aten::convolution_backward");
  count("kernels");
  int64_t channels = transposed ? weight.size(1) * groups : weight.size(0);
  auto [a, b, c] = at::convolution_backward(
      call.host(gradient, false), call.host(input, false), call.host(weight, false),
      mask[2] ? at::OptionalIntArrayRef({channels}) : at::OptionalIntArrayRef(), stride, padding, dilation,
      transposed, output_padding, groups, mask);
  return {call.device(a), call.device(b), call.device(c)};
}

int64_t sdp_choice(
    const at::Tensor&, const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, double, bool,
    std::optional<double>, bool) {
  return 0;  // the form that is made of other operators
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("_local_scalar_dense", &local_scalar_dense);
  m.impl("set_.source_Storage", &set_whole_storage);
  m.impl("set_.source_Storage_storage_offset", &set_storage);
  m.impl("set_.source_Tensor", &set_tensor);
  m.impl("set_", &set_nothing);
  m.impl("resize_", &resize);
  m.impl("as_strided", &as_strided);
  m.impl("record_stream", &record_stream);
  m.impl("convolution_overrideable", &convolution);
  m.impl("convolution_backward_overrideable", &convolution_backward);
  m.impl("_fused_sdp_choice", &sdp_choice);
  // Their forms with `out` resize it, with a warning.
  m.impl("mse_loss", torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
  m.impl("smooth_l1_loss", torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
}

// The operators of amp that models of the tests use; the rest compute in the type of their inputs.
using at::autocast::CastPolicy;
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  KERNEL_PRIVATEUSEONE(linear, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(matmul, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(mm, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(bmm, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(addmm, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(conv1d, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(conv2d, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(scaled_dot_product_attention, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(layer_norm, fp32)
  KERNEL_PRIVATEUSEONE(mse_loss, fp32)
  KERNEL_PRIVATEUSEONE(cross_entropy_loss, fp32)
  KERNEL_PRIVATEUSEONE(binary_cross_entropy_with_logits, fp32)
  KERNEL_PRIVATEUSEONE(nll_loss, fp32)
  KERNEL_PRIVATEUSEONE(l1_loss, fp32)
  KERNEL_PRIVATEUSEONE(smooth_l1_loss, fp32)
  KERNEL_PRIVATEUSEONE(log_softmax, int, fp32)
  KERNEL_PRIVATEUSEONE(softmax, int, fp32)
}

void after_fork() { is_forked = is_initialized; }

}  // namespace

PYBIND11_MODULE(simulated_device, m) {
  for (int i = 0; i < kDevices; i++) streams.push_back(Stream{i, 0});
  at::RegisterPrivateUse1HooksInterface(new Hooks());
  pthread_atfork(nullptr, nullptr, &after_fork);

  m.attr("NAME") = kName;
  m.def("device_count", [] { return is_forked ? 0 : kDevices; });
  m.def("current_device", [] { return current_device; });
  m.def("set_device", [](int index) {
    check_index(index);
    current_device = index;
  });
  m.def("is_initialized", [] { return is_initialized; });
  m.def("is_in_bad_fork", [] { return is_forked; });
  m.def("default_generator", [](int index) {
    return py::reinterpret_steal<py::object>(THPGenerator_initDefaultGenerator(default_generator(index)));
  });
  m.def("counters", [] {
    Lock lock(mutex);
    return counters;
  });
  m.def("reset_counters", [] {
    Lock lock(mutex);
    counters.clear();
  });
  m.def("pause_counting", [](bool paused) { counts = !paused; });  // of this thread
  m.def("on_wait", [](std::optional<py::function> call) {
    delete on_wait;
    on_wait = call ? new py::function(*call) : nullptr;
  });
  m.def("memory", [](int index) {
    check_index(index);
    Lock lock(mutex);
    Device& device = devices[index];
    return std::make_tuple(device.used, device.peak, device.limit, device.num_allocations);
  });
  m.def("set_limit", [](int index, size_t bytes) {
    check_index(index);
    Lock lock(mutex);
    devices[index].limit = bytes;
  });
  m.def("fail_in", [](int index, int64_t allocations) {
    check_index(index);
    Lock lock(mutex);
    devices[index].fail_in = allocations;
  });
  m.def("live", [] {
    Lock lock(mutex);
    std::vector<std::tuple<uint64_t, int, uint64_t, size_t>> live;
    for (auto& [data, block] : blocks)
      live.emplace_back(block->serial, block->device, reinterpret_cast<uint64_t>(data), block->bytes);
    return live;
  });
  m.def("num_pending", [] {
    Lock lock(mutex);
    size_t pending = 0;
    for (const Stream& stream : streams) pending += stream.copies.size();
    return pending;
  });
  m.def("take_violations", [] {
    Lock lock(mutex);
    return std::exchange(violations, {});
  });
}
