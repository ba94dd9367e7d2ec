"""Plain arithmetic on tensors: affine grids, layouts, range estimators and packing; it never sees a spec."""

from __future__ import annotations

from octavo.numerics.affine import Affine as Affine
from octavo.numerics.affine import affine_from_range as affine_from_range
from octavo.numerics.affine import dequantize as dequantize
from octavo.numerics.affine import fake_quantize as fake_quantize
from octavo.numerics.affine import integer_bounds as integer_bounds
from octavo.numerics.affine import quantize as quantize
from octavo.numerics.estimators import AllMinMax as AllMinMax
from octavo.numerics.estimators import CurrentMinMax as CurrentMinMax
from octavo.numerics.estimators import HistogramMse as HistogramMse
from octavo.numerics.estimators import HistogramPercentile as HistogramPercentile
from octavo.numerics.estimators import RangeEstimator as RangeEstimator
from octavo.numerics.estimators import RowCrossEntropy as RowCrossEntropy
from octavo.numerics.estimators import RunningMinMax as RunningMinMax
from octavo.numerics.estimators import TokenQuantiles as TokenQuantiles
from octavo.numerics.histogram import Histogram as Histogram
from octavo.numerics.layout import broadcast as broadcast
from octavo.numerics.layout import by_channel as by_channel
from octavo.numerics.layout import group_index as group_index
from octavo.numerics.min_max import Range as Range
from octavo.numerics.min_max import count_groups as count_groups
from octavo.numerics.min_max import min_max as min_max
from octavo.numerics.mse import mse_of_histogram as mse_of_histogram
from octavo.numerics.mse import mse_range as mse_range
from octavo.numerics.packing import pack as pack
from octavo.numerics.packing import packed_size as packed_size
from octavo.numerics.packing import unpack as unpack
from octavo.numerics.partition import distinct_ranges as distinct_ranges
from octavo.numerics.partition import optimal_groups as optimal_groups
from octavo.numerics.percentile import percentile_of_histogram as percentile_of_histogram
from octavo.numerics.percentile import percentile_range as percentile_range
