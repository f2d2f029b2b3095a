// The module that Python imports. A file here adds what Python sees of a topic (topics.hpp): it
// converts arrays, releases the GIL and maps errors; the kernels are in the headers of native/.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>

#include "memory.hpp"
#include "parallel.hpp"
#include "topics.hpp"

namespace nb = nanobind;

namespace {

void raise_pending_signal() {
    nb::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

void bind_threads(nb::module_& m) {
    using namespace nb::literals;
    m.def(
        "get_threads", [] { return megalabel::ThreadPool::threads().load(); },
        "The number of threads that native loops use.");
    m.def(
        "set_threads",
        [](int n) {
            if (n < 1)
                throw std::invalid_argument("expected at least 1 thread, not " + std::to_string(n));
            megalabel::ThreadPool::threads().store(n);
        },
        "n"_a, "Set the number of threads that native loops use.");
    m.def(
        "give_back_memory",
        [] {
            nb::gil_scoped_release release;
            megalabel::give_back_memory();
        },
        "Return memory to the system that was freed and kept for later.");
    m.def(
        "sleep_loop",
        [](std::size_t pieces, double seconds, std::ptrdiff_t fail_at) {
            nb::gil_scoped_release release;
            megalabel::parallel_for(pieces, 1, [&](std::size_t begin, std::size_t) {
                if (static_cast<std::ptrdiff_t>(begin) == fail_at)
                    throw std::runtime_error("piece " + std::to_string(begin) + " failed");
                std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
            });
        },
        "pieces"_a, "seconds"_a, "fail_at"_a = -1,
        "A loop with nothing in it but time, so that tests can interrupt, fork and fail in it.");
}

}  // namespace

NB_MODULE(_native, m) {
    nb::set_leak_warnings(false);  // of structs that a model keeps when Python ends
    megalabel::check_signals = raise_pending_signal;
    megalabel::signal_thread = reinterpret_cast<pthread_t>(nb::cast<unsigned long>(
        nb::module_::import_("threading").attr("main_thread")().attr("ident")));
    megalabel::ThreadPool::threads();  // a bad MEGALABEL_THREADS is told on import

    bind_threads(m);
    megalabel::bind::bind_arrays(m);
    megalabel::bind::bind_sparse_text(m);
    megalabel::bind::bind_text(m);
    megalabel::bind::bind_matching(m);
    megalabel::bind::bind_retrieval(m);
    megalabel::bind::bind_products(m);
    megalabel::bind::bind_vectors(m);
    megalabel::bind::bind_fan_in(m);
    megalabel::bind::bind_training(m);
    megalabel::bind::bind_boosting(m);
    megalabel::bind::bind_chunks(m);
    megalabel::bind::bind_online(m);
    megalabel::bind::bind_labels(m);
    megalabel::bind::bind_lexical(m);
    megalabel::bind::bind_metrics(m);
    megalabel::bind::bind_calibration(m);
    megalabel::bind::bind_decision(m);
    megalabel::bind::bind_mix(m);
}
