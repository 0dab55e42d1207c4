// A backend whose operations are Python's. torch reaches it as it reaches NCCL's, through its operators c10d.…, so that
// whoever listens there hears it; a process group that is written in Python is called past them.

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/utils/pybind.h>

#include <pybind11/chrono.h>
#include <pybind11/stl.h>

namespace py = pybind11;
using Tensors = std::vector<at::Tensor>;

// A Python object with `wait` and `is_completed`.
struct Held final : c10d::Work {
  explicit Held(py::object its) : its(std::move(its)) {}
  ~Held() override {
    py::gil_scoped_acquire gil;
    its = py::object();
  }
  bool isCompleted() override {
    py::gil_scoped_acquire gil;
    return its.attr("is_completed")().cast<bool>();
  }
  bool wait(std::chrono::milliseconds) override {
    py::gil_scoped_acquire gil;
    its.attr("wait")();
    return true;
  }
  void synchronize() override { wait({}); }
  py::object its;
};

// silent: a collective that was not asked to return at once has no Work, as ProcessGroupNCCL's since torch 2.8
struct Called final : c10d::Backend {
  Called(py::object its, int rank, int size, std::string name, bool silent)
      : Backend(rank, size), its(std::move(its)), name(std::move(name)), silent(silent) {}
  ~Called() override {
    py::gil_scoped_acquire gil;
    its = py::object();
  }

  template <class... Given>
  c10::intrusive_ptr<c10d::Work> start(bool returns, const char* what, const Given&... given) {
    c10::intrusive_ptr<c10d::Work> work;
    {
      py::gil_scoped_acquire gil;
      work = c10::make_intrusive<Held>(its.attr(what)(given...));
    }
    if (returns || !silent) return work;
    work->wait();
    return nullptr;
  }

  const std::string getBackendName() const override { return name; }
  c10::intrusive_ptr<c10d::Work> allreduce(Tensors& x, const c10d::AllreduceOptions& how) override {
    return start(how.asyncOp, "allreduce", x, how);
  }
  c10::intrusive_ptr<c10d::Work> broadcast(Tensors& x, const c10d::BroadcastOptions& how) override {
    return start(how.asyncOp, "broadcast", x, how);
  }
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<Tensors>& out, Tensors& x, const c10d::AllgatherOptions& how) override {
    return start(how.asyncOp, "allgather", out, x, how);
  }
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& out, at::Tensor& x, const c10d::AllgatherOptions& how) override {
    return start(how.asyncOp, "all_gather_single", out, x, how);
  }
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(at::Tensor& out, at::Tensor& x, const c10d::ReduceScatterOptions& how) override {
    return start(how.asyncOp, "reduce_scatter_single", out, x, how);
  }
  c10::intrusive_ptr<c10d::Work> alltoall_base(
      at::Tensor& out, at::Tensor& x, std::vector<int64_t>& coming, std::vector<int64_t>& leaving,
      const c10d::AllToAllOptions& how) override {
    return start(how.asyncOp, "all_to_all_single", out, x, coming, leaving, how);
  }
  c10::intrusive_ptr<c10d::Work> send(Tensors& x, int to, int tag) override { return start(true, "send", x, to, tag); }
  c10::intrusive_ptr<c10d::Work> recv(Tensors& x, int from, int tag) override { return start(true, "recv", x, from, tag); }
  void shutdown() override {
    py::gil_scoped_acquire gil;
    its.attr("shutdown")();
  }

  py::object its;
  std::string name;
  bool silent;
};

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("called", [](py::object its, int rank, int size, std::string name, bool silent) {
    return c10::intrusive_ptr<c10d::Backend>(c10::make_intrusive<Called>(its, rank, size, name, silent));
  });
}
