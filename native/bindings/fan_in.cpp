// Python's view of labels that look at a few features: fan_in.hpp, fan_in_search.hpp,
// fan_in_training.hpp.
#include "fan_in.hpp"

#include <nanobind/stl/variant.h>

#include <cmath>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <variant>

#include "arrays.hpp"
#include "fan_in_normalisers.hpp"
#include "fan_in_search.hpp"
#include "fan_in_training.hpp"
#include "float16.hpp"
#include "topics.hpp"

namespace megalabel::bind {

namespace {

template <class T>
using InOut3 = nb::ndarray<nb::numpy, T, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

using FanInIndices = std::variant<In2<std::uint16_t>, In2<std::uint32_t>>;
// std::uint16_t: the bits of a bfloat16.
using FanInWeights = std::variant<In3<float>, In3<Half>, In3<std::uint16_t>, In3<std::int8_t>>;
using FanInMoving = std::variant<InOut3<float>, InOut3<std::uint16_t>>;

const float* numbers(const float* p) { return p; }
const Half* numbers(const Half* p) { return p; }
const std::int8_t* numbers(const std::int8_t* p) { return p; }
const fan_in::BFloat* numbers(const std::uint16_t* p) {
    return reinterpret_cast<const fan_in::BFloat*>(p);
}
float* numbers(float* p) { return p; }
fan_in::BFloat* numbers(std::uint16_t* p) { return reinterpret_cast<fan_in::BFloat*>(p); }

// Indices and weights, once they fit each other.
template <class Weights>
fan_in::Layer layer_of(const FanInIndices& indices, const Weights& weights, std::size_t width,
                       std::span<const float> scales, std::span<const float> bias,
                       std::span<const std::int32_t> labels, std::size_t names) {
    fan_in::Layer layer{};
    std::visit(
        [&](const auto& array) {
            layer.indices = array.data();
            layer.groups = array.shape(0);
            layer.fan_in = array.shape(1);
        },
        indices);
    std::visit(
        [&](const auto& array) {
            layer.weights = numbers(array.data());
            layer.size = array.shape(2);
            if (array.shape(0) != layer.groups || array.shape(1) != layer.fan_in)
                throw std::invalid_argument(
                    "indices are of " + std::to_string(layer.groups) + " groups by " +
                    std::to_string(layer.fan_in) + " features, but weights of " +
                    std::to_string(array.shape(0)) + " by " + std::to_string(array.shape(1)));
        },
        weights);
    layer.scales = scales;
    layer.bias = bias;
    layer.labels = labels;
    layer.width = width;
    layer.names = names;
    layer.check();
    return layer;
}

struct FanIn {
    FanInIndices indices;
    FanInWeights weights;
    In<float> scales, bias;
    In<std::int32_t> labels;
    std::size_t width, label_count;

    fan_in::Layer view() const {
        return layer_of(indices, weights, width, span(scales), span(bias), span(labels),
                        label_count);
    }
};

struct FanInTraining {
    FanInIndices indices;
    FanInMoving weights, first, second;
    InOut<float> squares, bias;
    In<std::int32_t> labels, places;

    fan_in::Layer view(std::size_t width) const {
        return layer_of(indices, weights, width, {}, span(bias), span(labels), places.shape(0));
    }
};

struct FanInTruth {
    In<std::int64_t> starts;
    In<std::int32_t> labels;
    In<float> positives, negatives, weights;
    float weight;
    In<float> normalisers, masses;

    fan_in::Truth view() const {
        return {span(starts),  span(labels), span(positives),   span(negatives),
                span(weights), weight,       span(normalisers), span(masses)};
    }
};

struct FanInOptimiser {
    fan_in::Method method;
    float rate, momentum, decay, beta1, beta2, epsilon;
    std::uint64_t seed, step, first;

    // step: of this one, from 0.
    fan_in::Optimiser view() const {
        const auto steps = static_cast<double>(step + 1);
        auto correction = [&](float beta) {
            return static_cast<float>(1 - std::pow(static_cast<double>(beta), steps));
        };
        return {method,
                rate,
                momentum,
                decay,
                beta1,
                beta2,
                epsilon,
                correction(beta1),
                correction(beta2),
                seed,
                step,
                first};
    }
};

// The arrays that move, which are all of one type and size; empty ones are not kept.
template <class T>
auto moving_of(const FanInTraining& layer, fan_in::Method method) {
    using Number = std::remove_pointer_t<decltype(numbers(std::declval<T*>()))>;
    const auto& weights = std::get<InOut3<T>>(layer.weights);
    auto moment = [&](const FanInMoving& given, bool needed) -> Number* {
        const auto* array = std::get_if<InOut3<T>>(&given);
        if (array == nullptr)
            throw std::invalid_argument("moments must be of the type of their weights");
        if (array->size() == 0 && weights.size() > 0) {
            if (needed) throw std::invalid_argument("adam keeps moments of each weight");
            return nullptr;
        }
        if (array->size() != weights.size())
            throw std::invalid_argument("moments must be as many as weights");
        return numbers(array->data());
    };
    using fan_in::Method;
    const bool by_label = method == Method::label_adam;
    if (by_label && layer.squares.size() != layer.labels.size())
        throw std::invalid_argument("label_adam keeps a square of each place");
    return fan_in::Moving<Number>{numbers(weights.data()),
                                  moment(layer.first, method != Method::sgd),
                                  moment(layer.second, method == Method::adam),
                                  by_label ? layer.squares.data() : nullptr,
                                  weights.shape(1) * weights.shape(2),
                                  weights.shape(2)};
}

template <class T>
double fan_in_step(const FanInTraining& layer, const In2<float>& rows, const FanInTruth& truth,
                   fan_in::Loss loss, const FanInOptimiser& optimiser, const InOut2<float>& out,
                   bool update, bool valued) {
    const auto moving = moving_of<T>(layer, optimiser.method);
    using Number = std::remove_pointer_t<decltype(moving.weights)>;
    const fan_in::Layer view = layer.view(rows.shape(1));
    return without_gil([&] {
        return fan_in::Step<Number>(view, span(layer.places), moving, span(layer.bias),
                                    {rows.data(), rows.shape(0), rows.shape(1)}, truth.view(), loss,
                                    optimiser.view(), update, valued)
            .run(span(out));
    });
}

}  // namespace

void bind_fan_in(nb::module_& m) {
    m.attr("FAN_IN_TILE") = fan_in::tile;
    nb::enum_<fan_in::Form>(m, "FanInForm", "The losses of labels that look at a few features.")
        .value("logistic", fan_in::Form::logistic)
        .value("squared_hinge", fan_in::Form::squared_hinge)
        .value("focal", fan_in::Form::focal)
        .value("softmax", fan_in::Form::softmax);
    nb::enum_<fan_in::Method>(m, "FanInMethod", "How their weights move.")
        .value("sgd", fan_in::Method::sgd)
        .value("adam", fan_in::Method::adam)
        .value("label_adam", fan_in::Method::label_adam);
    bind_struct<FanIn>(m, "FanIn",
                       "Groups of labels that share the features they look at.\n"
                       "\n"
                       "The numbers of these (groups, features), weights (groups, features, labels "
                       "of a group) as\n"
                       "float32, float16, the bits of bfloat16, or int8; by place, a scale, a bias "
                       "and the label, -1\n"
                       "for none. No scales: 1; no bias: 0.",
                       std::pair{"indices", &FanIn::indices}, std::pair{"weights", &FanIn::weights},
                       std::pair{"scales", &FanIn::scales}, std::pair{"bias", &FanIn::bias},
                       std::pair{"labels", &FanIn::labels}, std::pair{"width", &FanIn::width},
                       std::pair{"label_count", &FanIn::label_count});
    bind_struct<FanInTraining>(
        m, "FanInTraining",
        "The same while it is trained.\n"
        "\n"
        "Weights and their moments are float32 or the bits of bfloat16; moments of size 0 are not\n"
        "kept. `squares`: of label_adam, the second moment of each place. `places`: of each "
        "label,\n"
        "-1 where it is not here.",
        std::pair{"indices", &FanInTraining::indices},
        std::pair{"weights", &FanInTraining::weights}, std::pair{"first", &FanInTraining::first},
        std::pair{"second", &FanInTraining::second}, std::pair{"squares", &FanInTraining::squares},
        std::pair{"bias", &FanInTraining::bias}, std::pair{"labels", &FanInTraining::labels},
        std::pair{"places", &FanInTraining::places});
    bind_struct<FanInTruth>(
        m, "FanInTruth",
        "A CSR matrix of labels, and what their losses count for.\n"
        "\n"
        "Of each entry, what its loss as a label that applies counts for, and that as one that "
        "does\n"
        "not; what all other labels count for, each or all of them. Of softmax, for each row the\n"
        "logarithm of the sum of exponentials, and its weight.",
        std::pair{"starts", &FanInTruth::starts}, std::pair{"labels", &FanInTruth::labels},
        std::pair{"positives", &FanInTruth::positives},
        std::pair{"negatives", &FanInTruth::negatives}, std::pair{"weights", &FanInTruth::weights},
        std::pair{"weight", &FanInTruth::weight},
        std::pair{"normalisers", &FanInTruth::normalisers},
        std::pair{"masses", &FanInTruth::masses});
    bind_struct<FanInOptimiser>(
        m, "FanInOptimiser",
        "How weights move; `step` is the number of this one, from 0.\n"
        "\n"
        "Momentum is of sgd, betas and epsilon are of adam, which keeps a second moment of each\n"
        "weight, and of label_adam, which keeps one of each label: the mean over its weights.\n"
        "`first` is the number of the first place among all, for what is drawn.",
        std::pair{"method", &FanInOptimiser::method}, std::pair{"rate", &FanInOptimiser::rate},
        std::pair{"momentum", &FanInOptimiser::momentum},
        std::pair{"decay", &FanInOptimiser::decay}, std::pair{"beta1", &FanInOptimiser::beta1},
        std::pair{"beta2", &FanInOptimiser::beta2}, std::pair{"epsilon", &FanInOptimiser::epsilon},
        std::pair{"seed", &FanInOptimiser::seed}, std::pair{"step", &FanInOptimiser::step},
        std::pair{"first", &FanInOptimiser::first});
    m.def(
        "fan_in_best",
        [](const FanIn& layer, In2<float> rows, In<std::uint8_t> allowed, std::size_t k) {
            const fan_in::Layer view = layer.view();
            auto ranked = without_gil([&] {
                return fan_in::Search(view, {rows.data(), rows.shape(0), rows.shape(1)},
                                      span(allowed), k)
                    .run();
            });
            return to_numpy(std::move(ranked), rows.shape(0), k);
        },
        nb::kw_only(), "layer"_a, "rows"_a, "allowed"_a, "k"_a,
        "The k best labels of each row and their scores, ties to the lower label.\n"
        "\n"
        "`allowed` marks those that may be found, all if it is empty. A place that no label takes\n"
        "holds the number of labels and minus infinity.");
    m.def(
        "fan_in_normalisers",
        [](const FanIn& layer, In2<float> rows, float number) {
            const fan_in::Layer view = layer.view();
            return to_numpy(without_gil([&] {
                return fan_in::normalisers(view, {rows.data(), rows.shape(0), rows.shape(1)},
                                           number);
            }));
        },
        nb::kw_only(), "layer"_a, "rows"_a, "number"_a,
        "Of each row, the logarithm of the sum of exp(number * score) over all labels.");
    m.def(
        "fan_in_step",
        [](const FanInTraining& layer, In2<float> rows, const FanInTruth& truth, fan_in::Form form,
           float number, const FanInOptimiser& optimiser, InOut2<float> gradient, bool update,
           bool valued) {
            auto step = [&]<class T>(const InOut3<T>&) {
                return fan_in_step<T>(layer, rows, truth, {form, number}, optimiser, gradient,
                                      update, valued);
            };
            return std::visit(step, layer.weights);
        },
        nb::kw_only(), "layer"_a, "rows"_a, "truth"_a, "form"_a, "number"_a, "optimiser"_a,
        "gradient"_a, "update"_a, "valued"_a,
        "One step of training, in place; gives the sum of the losses, or 0 unless `valued`.\n"
        "\n"
        "Its gradient by the rows fills `gradient`; with `update`, weights and biases move. An "
        "error\n"
        "or an interrupt may leave some of them moved.");
}

}  // namespace megalabel::bind
