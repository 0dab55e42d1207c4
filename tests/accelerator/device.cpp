// The emulated accelerator: torch's PrivateUse1 device under the name "gpu", eight of them in every process.
//
// Its memory is the host's and its kernels are the CPU's, so its numbers are the CPU's bit by bit. Its rules are a
// GPU's: tensors of different devices do not mix; work on a stream comes after what the stream was made to wait for;
// and what a transfer brings is rubbish until something has waited for it.
//
// A kernel runs when it is launched. So a stream never has work left of its own; what it can have is gates: transfers
// under way that it was made to wait for. The next kernel on such a stream keeps the host that launches it until the
// gates are open. That stands for a stream that is blocked while its host runs on: what comes after is as late.

#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/custom_class.h>
#include <torch/library.h>

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <map>
#include <set>

using at::Tensor;
using at::IntArrayRef;

// Of the interpreter that loads this.
extern "C" {
int PyGILState_Check();
void* PyEval_SaveThread();
void PyEval_RestoreThread(void*);
}

namespace {

constexpr auto GPU = c10::DeviceType::PrivateUse1;
constexpr int DEVICES = 8;
constexpr size_t HEAD = 64;  // bytes before a block, which tell its size and device
constexpr int64_t TOTAL = int64_t(16) << 30;

thread_local c10::DeviceIndex here = 0;

// What a GPU takes to begin in a process, with its first memory; nothing, unless this variable says how many seconds.
void begin() {
  static bool begun = [] {
    if (auto seconds = getenv("EMULATED_GPU_STARTS_IN")) usleep(std::stod(seconds) * 1e6);
    return true;
  }();
}

int64_t now() {
  using namespace std::chrono;
  return duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count();
}

c10::Device device_of(std::optional<c10::Device> said) {
  return said && said->has_index() ? *said : c10::Device(GPU, here);
}

// ---- memory

struct Block {
  size_t size;
  c10::DeviceIndex device;
};

std::mutex counting;
c10::CachingAllocator::Stat held[DEVICES];

void let_go(void* memory) {
  if (!memory) return;
  auto block = reinterpret_cast<Block*>(static_cast<char*>(memory) - HEAD);
  {
    std::lock_guard<std::mutex> turn(counting);
    held[block->device].decrease(block->size);
  }
  free(block);
}

struct Memory final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t size) override {
    c10::Device device(GPU, here);
    begin();
    if (!size) return {nullptr, nullptr, &let_go, device};
    auto block = static_cast<Block*>(aligned_alloc(HEAD, (size + 2 * HEAD - 1) / HEAD * HEAD));
    TORCH_CHECK(block, "the emulated device has no room for ", size, " bytes");
    *block = {size, here};
    std::lock_guard<std::mutex> turn(counting);
    held[here].increase(size);
    auto memory = reinterpret_cast<char*>(block) + HEAD;
    return {memory, memory, &let_go, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &let_go; }
  void copy_data(void* to, const void* from, size_t size) const override { memcpy(to, from, size); }

  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    std::lock_guard<std::mutex> turn(counting);
    c10::CachingDeviceAllocator::DeviceStats stats;
    for (auto* bytes : {&stats.allocated_bytes, &stats.active_bytes, &stats.reserved_bytes, &stats.requested_bytes})
      (*bytes)[0] = held[device];
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override { held[device].reset_accumulated(); }
  void resetPeakStats(c10::DeviceIndex device) override { held[device].reset_peak(); }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    return {TOTAL - held[device].current, TOTAL};
  }
};
Memory memory;
REGISTER_ALLOCATOR(GPU, &memory);

// The same memory, seen by the CPU.
Tensor seen(const Tensor& x) {
  if (!x.is_privateuseone()) return x;
  c10::DataPtr data(const_cast<void*>(x.storage().data()), c10::Device(c10::kCPU));
  c10::Storage storage(c10::Storage::use_byte_size_t(), x.storage().nbytes(), std::move(data), nullptr, false);
  auto y = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), x.dtype());
  y.unsafeGetTensorImpl()->set_sizes_and_strides(x.sizes(), x.strides(), x.storage_offset());
  return x.is_conj() ? y.conj() : y;
}

// ---- gates, streams, events

// Who waits, and who has a lock, does not have the interpreter's: to let go of a tensor may take that.
struct Turn {
  struct Apart {
    void* interpreter = PyGILState_Check() ? PyEval_SaveThread() : nullptr;
    ~Apart() {
      if (interpreter) PyEval_RestoreThread(interpreter);
    }
  } apart;
  std::unique_lock<std::mutex> lock;
  explicit Turn(std::mutex& mutex) : lock(mutex) {}
};

// A transfer under way. When it is over, `open` says so; when something has waited for it, its results are brought.
struct Gate final : torch::CustomClassHolder {
  // x becomes what the twin on the host holds by then; until then it is rubbish, and nothing may write to it.
  void expect(const Tensor& x, const Tensor& twin) {
    Turn turn(mine);
    int rubbish = x.is_floating_point() || x.is_complex() ? 0xFF : 0x7F;  // not a number; a large number
    memset(seen(x).data_ptr(), rubbish, x.nbytes());
    coming.push_back({x, twin, seen(x).clone()});
  }

  // x is read, and nothing may write to it until somebody has waited, or asked and been told that it is over.
  void watch(const Tensor& x) { leaving.push_back({x, seen(x).clone()}); }

  void open(const std::string& error) {
    Turn turn(mine);
    failed = error.empty() ? misused() : error;
    opened = now();
    over.notify_all();
  }

  // The stream that is current for a device waits; the host goes on.
  void wait(int64_t device);

  bool is_open() {
    Turn turn(mine);
    if (is_over()) bring();
    return is_over();
  }

  void pass() {
    Turn turn(mine);
    over.wait(turn.lock, [&] { return is_over(); });
    bring();
  }

  bool is_brought() {
    Turn turn(mine);
    return brought;
  }

  bool is_over() const { return opened.load() > 0; }

  std::atomic<int64_t> opened{0};  // when

 private:
  struct Coming {
    Tensor x, twin, rubbish;
  };
  struct Leaving {
    Tensor x, copy;
  };

  static bool same(const Tensor& x, const Tensor& copy) {
    auto end = x.storage_offset() * x.itemsize() + x.nbytes();
    return x.storage().nbytes() >= end && !memcmp(seen(x).data_ptr(), copy.data_ptr(), x.nbytes());
  }

  std::string misused() {
    for (auto& [x, copy] : leaving)
      if (!same(x, copy)) return "a tensor was changed, or let go, while it was sent: wait for the work first";
    for (auto& [x, twin, rubbish] : coming)
      if (!same(x, rubbish)) return "a tensor was changed, or let go, while it was filled: wait for the work first";
    return "";
  }

  void bring() {
    if (!brought && failed.empty()) failed = misused();
    TORCH_CHECK(failed.empty(), failed);
    for (auto& [x, twin, rubbish] : coming) memcpy(seen(x).data_ptr(), twin.data_ptr(), x.nbytes());
    coming.clear();
    leaving.clear();
    brought = true;
  }

  std::mutex mine;
  std::condition_variable over;
  std::vector<Coming> coming;
  std::vector<Leaving> leaving;
  std::string failed;
  bool brought = false;
};

using Gates = std::vector<c10::intrusive_ptr<Gate>>;

std::mutex queueing;
std::map<std::pair<int, c10::StreamId>, Gates> gates;  // of every stream that has some
constexpr int STREAMS = 32;  // of a device and priority, taken in turns, as CUDA's are; number 0 is the default one
constexpr int PRIORITIES = 3;
std::atomic<unsigned> taken[PRIORITIES] = {};
thread_local c10::StreamId current[DEVICES] = {};

c10::Stream stream_of(c10::DeviceIndex device) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(GPU, device), current[device]);
}

Gates gates_of(const c10::Stream& stream) {
  Turn turn(queueing);
  auto found = gates.find({stream.device_index(), stream.id()});
  return found == gates.end() ? Gates() : found->second;
}

void add(const c10::Stream& stream, const Gates& more) {
  Turn turn(queueing);
  auto& its = gates[{stream.device_index(), stream.id()}];
  its.insert(its.end(), more.begin(), more.end());
}

// Forget the gates that have been passed.
void tidy(const c10::Stream& stream) {
  Turn turn(queueing);
  auto& its = gates[{stream.device_index(), stream.id()}];
  its.erase(std::remove_if(its.begin(), its.end(), [](auto& gate) { return gate->is_brought(); }), its.end());
}

void pass(const c10::Stream& stream) {
  auto its = gates_of(stream);
  if (its.empty()) return;
  for (auto& gate : its) gate->pass();
  tidy(stream);
}

bool passed(const Gates& its) {
  return std::all_of(its.begin(), its.end(), [](auto& gate) { return gate->is_open(); });
}

void launch(c10::DeviceIndex device) { pass(stream_of(device)); }

void Gate::wait(int64_t device) {
  {
    Turn turn(mine);
    auto said = failed.empty() && !brought ? misused() : failed;
    TORCH_CHECK(said.empty(), said);
  }
  add(stream_of(device), {c10::intrusive_ptr<Gate>::reclaim_copy(this)});
}

struct Event {
  Gates before;
  int64_t noted;
  int64_t when() const {
    auto last = noted;
    for (auto& gate : before) last = std::max(last, gate->opened.load());
    return last;
  }
};

// ---- the device as torch asks for it

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return GPU; }
  c10::DeviceIndex deviceCount() const noexcept override { return DEVICES; }
  c10::Device getDevice() const override { return {GPU, here}; }
  c10::Device exchangeDevice(c10::Device device) const override {
    auto before = getDevice();
    setDevice(device);
    return before;
  }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(0 <= device.index() && device.index() < DEVICES, "there is no ", device);
    here = device.index();
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override { here = device.index(); }

  c10::Stream getStream(c10::Device device) const override { return stream_of(device_of(device).index()); }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device_of(device));
  }
  c10::Stream getNewStream(c10::Device device, int priority) const override {
    int pool = std::min(std::max(-priority, 0), PRIORITIES - 1);
    return c10::Stream(c10::Stream::UNSAFE, device_of(device), 1 + pool * STREAMS + taken[pool]++ % STREAMS);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override { return getNewStream(device, 0); }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    auto before = stream_of(stream.device_index());
    current[stream.device_index()] = stream.id();
    return before;
  }
  bool queryStream(const c10::Stream& stream) const override { return passed(gates_of(stream)); }
  void synchronizeStream(const c10::Stream& stream) const override { pass(stream); }
  void synchronizeDevice(c10::DeviceIndex device) const override {
    for (c10::StreamId id = 0; id <= PRIORITIES * STREAMS; ++id)
      pass(c10::Stream(c10::Stream::UNSAFE, c10::Device(GPU, device), id));
  }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex device, c10::EventFlag) const override {
    destroyEvent(*event, device);
    tidy(stream);
    *event = new Event{gates_of(stream), now()};
  }
  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
  void block(void* event, const c10::Stream& stream) const override {
    if (event) add(stream, static_cast<Event*>(event)->before);
  }
  bool queryEvent(void* event) const override { return !event || passed(static_cast<Event*>(event)->before); }
  void synchronizeEvent(void* event) const override {
    if (event)
      for (auto& gate : static_cast<Event*>(event)->before) gate->pass();
  }
  double elapsedTime(void* first, void* second, c10::DeviceIndex) const override {
    bool over = first && second && queryEvent(first) && queryEvent(second);
    TORCH_CHECK(over, "the time between two events is known when both are recorded and over");
    return (static_cast<Event*>(second)->when() - static_cast<Event*>(first)->when()) * 1e-6;
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return DEVICES; }
  c10::DeviceIndex getCurrentDevice() const override { return here; }
  void setCurrentDevice(c10::DeviceIndex device) const override { Guard().setDevice({GPU, device}); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    return Guard().exchangeDevice({GPU, device}).index();
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override { return exchangeDevice(device); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t size) const override {
    c10::DeviceGuard guard(storage.device());
    launch(here);
    auto data = memory.allocate(size);
    if (auto kept = std::min(size, storage.nbytes())) memcpy(data.get(), storage.data(), kept);
    storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(data));
    storage.unsafeGetStorageImpl()->set_nbytes(size);
  }
};
Hooks hooks;
bool registered = (at::RegisterPrivateUse1HooksInterface(&hooks), true);

// ---- operators: a few of the device's own, all others the CPU's

Tensor empty(IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
             std::optional<c10::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  c10::DeviceGuard guard(device_of(device));
  return at::detail::empty_generic(size, &memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   dtype.value_or(at::get_default_dtype_as_scalartype()), format);
}

Tensor empty_strided(IntArrayRef size, IntArrayRef stride, std::optional<at::ScalarType> dtype,
                     std::optional<at::Layout>, std::optional<c10::Device> device, std::optional<bool>) {
  c10::DeviceGuard guard(device_of(device));
  return at::detail::empty_strided_generic(size, stride, &memory, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           dtype.value_or(at::get_default_dtype_as_scalartype()));
}

// A copy may join two devices, and waits for the streams of both.
Tensor copy_from(const Tensor& from, const Tensor& to, bool) {
  for (auto& x : {from, to})
    if (x.is_privateuseone()) launch(x.get_device());
  seen(to).copy_(seen(from));
  return to;
}

Tensor copy_from_and_resize(const Tensor& from, const Tensor& to) {
  if (to.sizes() != from.sizes()) to.resize_(from.sizes());  // which would forget the strides of a view
  return copy_from(from, to, false);
}

const Tensor& resize(const Tensor& x, IntArrayRef size, std::optional<at::MemoryFormat>) {
  size_t bytes = (c10::multiply_integers(size) + x.storage_offset()) * x.itemsize();
  if (bytes > x.storage().nbytes()) hooks.resizePrivateUse1Bytes(x.storage(), bytes);
  x.unsafeGetTensorImpl()->set_sizes_contiguous(size);
  return x;
}

Tensor& set_from(Tensor& x, at::Storage storage, int64_t offset, IntArrayRef size, IntArrayRef stride) {
  auto impl = x.unsafeGetTensorImpl();
  impl->set_storage_keep_dtype(std::move(storage));
  impl->set_storage_offset(offset);
  if (stride.empty() && !size.empty()) {
    impl->set_sizes_contiguous(size);
  } else {
    impl->set_sizes_and_strides(size, stride);
  }
  return x;
}

Tensor& set_to(Tensor& x, const Tensor& other) {
  return set_from(x, other.storage(), other.storage_offset(), other.sizes(), other.strides());
}

at::Scalar number(const Tensor& x) {
  launch(x.get_device());
  return seen(x).item();
}

// These alone take indices from the CPU, as CUDA's do.
const std::set<std::string> INDEXING = {"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"};

// Every tensor among the arguments of an operator, and whether it is written to.
template <typename Look>
void each_tensor(const c10::OperatorHandle& op, torch::jit::Stack* stack, Look look) {
  auto& arguments = op.schema().arguments();
  auto values = torch::jit::last(*stack, arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    bool written = arguments[i].alias_info() && arguments[i].alias_info()->isWrite();
    auto one = [&](const c10::IValue& value) {
      if (value.isTensor() && value.toTensor().defined()) look(value.toTensor(), written);
    };
    one(values[i]);
    if (values[i].isList())
      for (const c10::IValue value : values[i].toListRef()) one(value);
  }
}

// Every other kernel: the CPU's, on copies. All tensors are on one device, but for single numbers that are only read.
void kernel(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  std::optional<c10::Device> device;
  each_tensor(op, stack, [&](const Tensor& x, bool) {
    if (x.is_privateuseone() && !device) device = x.device();
  });
  auto& name = op.schema().name();
  each_tensor(op, stack, [&](const Tensor& x, bool written) {
    bool few = x.dim() == 0 || (INDEXING.count(name) && !x.is_floating_point());
    TORCH_CHECK(!device || x.device() == *device || (x.is_cpu() && few && !written),
                "Expected all tensors to be on the same device, but ", name, " found at least two devices, ", *device,
                " and ", x.device());
  });
  c10::OptionalDeviceGuard guard(device);
  launch(here);
  at::native::cpu_fallback(op, stack, /*error_on_views=*/true);
}

Tensor view(const Tensor& x, IntArrayRef size) { return at::native::view(x, size); }
Tensor as_strided(const Tensor& x, IntArrayRef size, IntArrayRef stride, std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(x, size, stride, offset);
}

// torch asks devices from outside for convolutions by names of their own.
Tensor convolution(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias, IntArrayRef stride,
                   IntArrayRef padding, IntArrayRef dilation, bool transposed, IntArrayRef output_padding,
                   int64_t groups) {
  auto same = [&](const Tensor& one) {
    TORCH_CHECK(one.device() == x.device(), "Expected all tensors to be on the same device, but a convolution found ",
                x.device(), " and ", one.device());
    return seen(one);
  };
  launch(x.get_device());
  auto b = bias && bias->defined() ? std::optional<Tensor>(same(*bias)) : std::nullopt;
  return at::convolution(seen(x), same(weight), b, stride, padding, dilation, transposed, output_padding, groups)
      .to(x.device());
}

std::tuple<Tensor, Tensor, Tensor> convolution_backward(
    const Tensor& gradient, const Tensor& x, const Tensor& weight, IntArrayRef stride, IntArrayRef padding,
    IntArrayRef dilation, bool transposed, IntArrayRef output_padding, int64_t groups, std::array<bool, 3> mask) {
  launch(x.get_device());
  auto channels = transposed ? weight.size(1) * groups : weight.size(0);
  auto [by_x, by_weight, by_bias] = at::convolution_backward(
      seen(gradient), seen(x), seen(weight), IntArrayRef{channels}, stride, padding, dilation, transposed,
      output_padding, groups, mask);
  auto back = [&](const Tensor& y) { return y.defined() ? y.to(x.device()) : y; };
  return {back(by_x), back(by_weight), back(by_bias)};
}

// Its schema does not say that it changes the running averages, so the copies of `kernel` would lose them.
std::tuple<Tensor, Tensor, Tensor> batch_norm(
    const Tensor& x, const std::optional<Tensor>& weight, const std::optional<Tensor>& bias,
    const std::optional<Tensor>& mean, const std::optional<Tensor>& variance, bool training, double momentum,
    double eps) {
  launch(x.get_device());
  auto its = [](const std::optional<Tensor>& one) { return one && one->defined() ? seen(*one) : Tensor(); };
  auto [y, kept, deviation] = at::native_batch_norm(
      seen(x), its(weight), its(bias), its(mean), its(variance), training, momentum, eps);
  return {y.to(x.device()), kept.to(x.device()), deviation.to(x.device())};
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("resize_", resize);
  m.impl("set_.source_Storage_storage_offset", set_from);
  m.impl("set_.source_Tensor", set_to);
  m.impl("_local_scalar_dense", number);
  m.impl("view", view);
  m.impl("as_strided", as_strided);
  m.impl("_reshape_alias", at::native::_reshape_alias);
  m.impl("unfold", at::native::unfold);
  m.impl("native_batch_norm", batch_norm);
  m.impl("convolution_overrideable", convolution);
  m.impl("convolution_backward_overrideable", convolution_backward);
}
TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&kernel>()); }

TORCH_LIBRARY(emulated_gpu, m) {
  m.def("devices() -> int", [] { return int64_t(DEVICES); });
  m.class_<Gate>("Gate")
      .def(torch::init<>())
      .def("expect", &Gate::expect)
      .def("watch", &Gate::watch)
      .def("open", &Gate::open)
      .def("wait", &Gate::wait)
      .def("is_open", &Gate::is_open);
}
