// What each file of bindings adds to the module.
#pragma once

#include <nanobind/nanobind.h>

namespace megalabel::bind {

void bind_arrays(nanobind::module_& m);
void bind_boosting(nanobind::module_& m);
void bind_calibration(nanobind::module_& m);
void bind_chunks(nanobind::module_& m);
void bind_decision(nanobind::module_& m);
void bind_fan_in(nanobind::module_& m);
void bind_labels(nanobind::module_& m);
void bind_lexical(nanobind::module_& m);
void bind_matching(nanobind::module_& m);
void bind_metrics(nanobind::module_& m);
void bind_mix(nanobind::module_& m);
void bind_online(nanobind::module_& m);
void bind_products(nanobind::module_& m);
void bind_retrieval(nanobind::module_& m);
void bind_sparse_text(nanobind::module_& m);
void bind_text(nanobind::module_& m);
void bind_training(nanobind::module_& m);
void bind_vectors(nanobind::module_& m);

}  // namespace megalabel::bind
