// Newton steps of many labels side by side, or of one label, by conjugate gradients.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "lanes.hpp"
#include "parallel.hpp"

namespace megalabel::newton {

// What a Newton step needs: `lanes` labels side by side, or one label along. The residual is the
// gradient before it is what conjugate gradients leave of it.
struct Vectors {
    Buffer residual, step, direction, product;

    void resize(std::size_t size) {
        for (auto* v : {&residual, &step, &direction, &product}) v->resize(size);
    }
};

// Sums over the lanes, where they are all of one label.
inline void join(Lanes& sums) { sums.fill(std::reduce(sums.begin(), sums.end())); }

// Conjugate gradients on H s = -g, from s = 0 and g as the residual, until the model value of
// each label settles: s.g + s.Hs / 2, which is s.g / 2 as the residual is at right angles to s.
// `product` adds the Hessian's product with v.direction to v.product for the lanes still going.
// Where the lanes are of one label (`joined`), sums go over all of them. Returns s.g.
template <class Product>
Lanes find_step(Vectors& v, std::size_t places, int most_products, std::array<bool, lanes> going,
                const Lanes& square, bool joined, const Product& product) {
    for (std::size_t q = 0; q < places * lanes; ++q)
        v.product[q] = v.residual[q] = v.direction[q] = -v.residual[q];
    Lanes rho = square, model{};
    for (int t = 1; t <= most_products; ++t) {
        end_if_cancelled();  // the labels of a large corpus take minutes
        unsigned wanted = 0;
        for (std::size_t k = 0; k < lanes; ++k) wanted |= unsigned{going[k]} << k;
        product(wanted);
        Lanes bend{}, next{};
        dot(v.direction.data(), v.product.data(), places, bend.data());
        if (joined) join(bend);
        Factors alpha{}, beta{};
        for (std::size_t k = 0; k < lanes; ++k)
            if (going[k] && bend[k] > 0) alpha[k] = static_cast<float>(rho[k] / bend[k]);
        advance(alpha.data(), v.direction.data(), v.product.data(), v.step.data(),
                v.residual.data(), places, next.data());
        if (joined) join(next);
        bool any = false;
        for (std::size_t k = 0; k < lanes; ++k) {
            if (!going[k]) continue;
            const double q = model[k] - 0.5 * alpha[k] * rho[k];
            const double enough = std::min(0.5, std::sqrt(std::sqrt(square[k])));
            going[k] = alpha[k] > 0 && t * (q - model[k]) < enough * q;
            model[k] = q;
            if (!going[k]) continue;
            beta[k] = static_cast<float>(next[k] / rho[k]);
            rho[k] = next[k];
            any = true;
        }
        if (!any) break;
        turn(v.residual.data(), beta.data(), v.direction.data(), v.product.data(), places);
    }
    for (auto& value : model) value *= 2;
    return model;
}

}  // namespace megalabel::newton
